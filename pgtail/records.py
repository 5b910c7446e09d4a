"""Records and named tuples: classes of typed fields that cost little to define.

A dataclass writes its methods as source and compiles them when its module is imported, which takes about a millisecond;
typing.NamedTuple takes a third of that. pgtail is started often, by scripts and for each press of Tab: what it imports
then is a Record, declared like a frozen dataclass, or a NamedTuple of this module. To create a Record takes longer than
to create a dataclass's object: a class of which there is one for each row has its own __init__.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, dataclass_transform

__all__ = ["Made", "NamedTuple", "Record", "fields_of", "made_by", "replace"]

R = TypeVar("R", bound="Record")
_set: Final = object.__setattr__


class Made:
    """In place of a default: the function that makes it for each object."""

    __slots__ = ("declared", "make")

    def __init__(self, make: Callable[[], Any], declared: object = None) -> None:
        self.make = make
        self.declared = declared
        """What users of the class know about the field."""


def made_by(make: Callable[[], Any]) -> Any:
    """A field whose default is made for each object."""
    return Made(make)


@dataclass_transform(frozen_default=True)
class RecordType(type):
    """The metaclass of Record: makes slots of the annotated names."""

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        frozen: bool = True,
        eq: bool = True,
        uncompared: tuple[str, ...] = (),
    ) -> RecordType:
        own = [one for one, kind in namespace.get("__annotations__", {}).items() if not kind.startswith("ClassVar")]
        defaults = {one: namespace.pop(one) for one in own if one in namespace}
        namespace["__slots__"] = namespace["__match_args__"] = tuple(own)
        if not frozen:
            namespace |= {"__setattr__": object.__setattr__, "__hash__": None}
        if not eq:
            namespace |= {"__eq__": object.__eq__, "__hash__": object.__hash__}
        cls = super().__new__(mcs, name, bases, namespace)
        inherited: dict[str, Any] = {}
        for base in bases:
            inherited |= getattr(base, "_defaults", {})
        cls._defaults = inherited | {one: defaults.get(one, _MISSING) for one in own}
        cls._compared = tuple([one for one in cls._defaults if one not in uncompared])
        return cls

    _defaults: dict[str, Any]
    """The fields in their order, with their defaults."""
    _compared: tuple[str, ...]


_MISSING: Final = object()


class Record(metaclass=RecordType):
    """An object with fields: immutable (`frozen`), and equal to one of the same class with equal values (`eq`).

    Fields in `uncompared` do not count for that, and are not shown by repr().
    """

    def __init__(self, *values: Any, **named: Any) -> None:
        defaults = type(self)._defaults
        given = len(values)
        for index, (name, default) in enumerate(defaults.items()):
            if index < given:
                value = values[index]
            elif name in named:
                value = named.pop(name)
            else:
                value = default
                if value is _MISSING:
                    raise TypeError(f"{type(self).__name__} needs a value for {name}")
                if value.__class__ is Made:
                    value = value.make()
            _set(self, name, value)
        if named or given > len(defaults):
            raise TypeError(f"{type(self).__name__} has the fields {', '.join(defaults)}, each with one value")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a field of {type(self).__name__} cannot be set: {name}")

    def __eq__(self, other: object) -> bool:
        return _compared(self) == _compared(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(_compared(self))

    def __repr__(self) -> str:
        fields = zip(type(self)._compared, _compared(self), strict=True)
        return f"{type(self).__name__}({', '.join([f'{name}={value!r}' for name, value in fields])})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), _values(self)


def _values(record: Any) -> tuple[Any, ...]:
    return tuple([getattr(record, name) for name in type(record)._defaults])


def _compared(record: Any) -> tuple[Any, ...]:
    return tuple([getattr(record, name) for name in type(record)._compared])


def fields_of(cls: type[Any]) -> Mapping[str, Any]:
    """The fields of a class in their order, with their defaults, which may be Made."""
    assert isinstance(cls, RecordType)
    fields: Mapping[str, Any] = cls._defaults
    return fields


def replace(record: R, **changes: Any) -> R:
    """A copy with other values in some fields. Raises TypeError for a field that there is not."""
    return type(record)(**{name: getattr(record, name) for name in fields_of(type(record))} | changes)


if TYPE_CHECKING:
    from typing import NamedTuple
else:
    _getter = getattr(collections, "_tuplegetter", lambda index, doc: property(lambda self: self[index], doc=doc))

    class _TupleType(type):
        def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
            own = tuple(namespace.get("__annotations__", ()))
            if own:
                namespace["_field_defaults"] = {one: namespace.pop(one) for one in own if one in namespace}
                namespace |= {one: _getter(index, None) for index, one in enumerate(own)}
                namespace["_fields"] = namespace["__match_args__"] = own
            namespace["__slots__"] = ()
            return super().__new__(mcs, name, bases, namespace)

    class NamedTuple(tuple, metaclass=_TupleType):
        """A tuple with names for its places, as typing.NamedTuple."""

        _fields = ()
        _field_defaults = {}  # noqa: RUF012 -- replaced in each class

        def __new__(cls, *values: Any, **named: Any) -> Any:
            fields = cls._fields
            if named or len(values) != len(fields):
                defaults = cls._field_defaults
                rest = [named.pop(one, defaults.get(one, _MISSING)) for one in fields[len(values) :]]
                values = (*values, *rest)
                if named or _MISSING in rest or len(values) != len(fields):
                    raise TypeError(f"{cls.__name__} has the fields {', '.join(fields)}, each with one value")
            return tuple.__new__(cls, values)

        @classmethod
        def _make(cls, values: Iterable[Any]) -> Any:
            return cls(*values)

        def _replace(self, **changes: Any) -> Any:
            return type(self)(**self._asdict() | changes)

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self) -> str:
            return (
                f"{type(self).__name__}({', '.join([f'{name}={value!r}' for name, value in self._asdict().items()])})"
            )

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)
