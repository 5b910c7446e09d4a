"""What is known of a storage before it is opened: whether a name is a URI, and options.

These are credentials, endpoints and limits, under the names that deltalake gives them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pgtail.errors import OptionError

URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def is_uri(text: str) -> bool:
    """Whether this is a URI and not a local path."""
    return URI.match(text) is not None


class StorageOptions(NamedTuple):
    """Names and values, which repr() does not show: some are secrets."""

    pairs: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"StorageOptions({', '.join(name for name, _ in self.pairs)})"

    @classmethod
    def of(cls, options: Mapping[str, str] | None) -> StorageOptions:
        """From a mapping, None for no options."""
        return cls(tuple((options or {}).items()))

    def as_dict(self) -> dict[str, str]:
        """The options as deltalake takes them."""
        return dict(self.pairs)


NO_OPTIONS = StorageOptions()


def parse_options(texts: Iterable[str]) -> StorageOptions:
    """Options given as KEY=VALUE; a later one replaces an earlier one. Raises OptionError."""
    options: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise OptionError("expected KEY=VALUE, such as aws_region=eu-central-1")
        options[name] = value
    return StorageOptions.of(options)
