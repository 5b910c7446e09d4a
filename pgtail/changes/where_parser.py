"""Parses the condition of --where, and points at the error if it is invalid. The grammar: pgtail-filter(7).

A value of one word needs no quotes. An operator in it is an error: it is more often a second condition than a part of
the value.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable
from typing import Final, Literal, NamedTuple, NoReturn

from pgtail.changes.condition import CHANGE_OPS, CONTEXT, PROPERTIES, And, Condition, Not, Operand, Or, Test, like
from pgtail.errors import OptionError

_INSTEAD: Final = {"&&": "AND", "||": "OR", "==": "="}
"""Operators of other languages, and what they are called here."""
_MOST_DEPTH: Final = 100
_OPERATORS: Final = ("=", "!=", "<>", "<", "<=", ">", ">=", "~", "!~", "~*", "!~*")
_PATTERNS: Final = ("like", "ilike", "~", "~*")
_OP: Final = Operand("op", is_property=True)
_NEGATED: Final = {"!=": "<>", "!~": "~", "!~*": "~*"}

_NAME: Final = r"""(?: "(?P<quoted>(?:[^"]|"")+)" | (?P<plain>(?:(?!->)[^\s=!<>~"'(),])+) )"""
_QUOTED: Final = r"'((?:[^']|'')*)'"
_OPERATOR: Final = re.compile(r"&&|\|\||[=<>]+")
"""What a word without quotes may not contain."""
_WORDS: Final = {
    "and": r"and(?!\w)",
    "or": r"or(?!\w)",
    "not": r"not(?!\w)(?!\s*[=!<>~])",
    "in": r"in\s*(?=\()",
    "between": r"between(?!\w)",
    "like": r"(?P<insensitive>i?)like(?!\w)",
    "is": r"is(?!\w)",
    "after is": r"(?P<not>not\s+)?(?P<what>null|unknown|true|false|distinct\s+from)(?!\w)",
    "operator": r"[=!<>~]+(?:(?<=~)\*)?",
    "name": rf"(?:(?P<row>(?-i:old|new))\.)?{_NAME}",
    "column": r"""(?-i:old|new)\.(?: "(?:[^"]|"")+" | \w+)(?=\s*(?:$|\)|and\b|or\b|->))""",
    "arrow": r"->>?",
    "index": r"-?\d{1,9}(?!\w)",
    "quoted": _QUOTED + r"(?!')",
    "after quote": r"\)|,|(?:and|or)(?!\w)",
    "function": r"(?P<name>\w+)\s*(?=\()",
    "word": r"""(?!(?:and|or|not)(?!\w))[^\s'"(),]+""",
}


@functools.cache
def _word(kind: str) -> re.Pattern[str]:
    return re.compile(_WORDS[kind], re.VERBOSE | re.IGNORECASE)


class _Value(NamedTuple):
    text: str
    quoted: bool


class Parser:
    """The condition of one --where. `may_hide` says whether a column's values are secret: errors then quote nothing.

    `context`: the word context stands for that of --context, and context.KEY for a member of it.
    """

    def __init__(self, text: str, may_hide: Callable[[str], bool] | None, *, context: bool) -> None:
        self._text = text
        self._context = context
        self._may_hide = may_hide
        self._pos = 0
        self._depth = 0

    def parse(self) -> Condition:
        """The condition. Raises OptionError."""
        if not self._text.strip():
            raise OptionError("--where: expected a condition, such as total > 100")
        condition = self._disjunction()
        if self._pos < len(self._text):
            rest = self._text[self._pos :]
            advice = _advice_on(rest) or "; a value of several words stands in single quotes"
            self._fail(f"the condition ends before this{advice}")
        return condition

    def _disjunction(self) -> Condition:
        parts = self._joined(self._conjunction, "or")
        return parts[0] if len(parts) == 1 else Or(parts)

    def _conjunction(self) -> Condition:
        parts = self._joined(self._negation, "and")
        return parts[0] if len(parts) == 1 else And(parts)

    def _joined(self, part: Callable[[], Condition], word: str) -> tuple[Condition, ...]:
        parts = [part()]
        while self._take_token(word):
            parts.append(part())
        return tuple(parts)

    def _negation(self) -> Condition:
        self._blanks()
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            self._fail(f"more than {_MOST_DEPTH} levels of brackets and NOT")
        try:
            start = self._pos
            if self._take_token("not"):
                return Not(self._negation())
            if self._take_text("("):
                condition = self._disjunction()
                if not self._take_text(")"):
                    self._fail("this bracket is not closed", start)
                return condition
            return self._test()
        finally:
            self._depth -= 1

    def _test(self) -> Condition:
        start = self._pos
        if function := _word("function").match(self._text, self._pos):
            if function["name"].lower() != "changed":
                self._fail("there is no function of this name, only changed(COLUMN)")
            self._pos = function.end()
            return self._changed(start)
        operand = self._operand()
        negated = self._take_token("not") is not None
        test: Condition
        if token := self._take_token("like"):
            op = "ilike" if token["insensitive"] else "like"
            test = self._made(start, operand, op, [self._pattern()])
        elif self._take_token("in"):
            test = self._made(start, operand, "in", self._list())
        elif self._take_token("between"):
            test = self._between(start, operand)
        elif negated:
            self._fail("expected LIKE, ILIKE, IN or BETWEEN after NOT")
        elif self._take_token("is"):
            return self._is(start, operand)
        else:
            return self._comparison(start, operand)
        return Not(test) if negated else test

    def _comparison(self, start: int, operand: Operand) -> Condition:
        place = self._pos
        token = self._take_token("operator")
        if token is None:
            self._fail(f"expected an operator: {' '.join(_OPERATORS)}, [NOT] LIKE, ILIKE, IN or BETWEEN, IS [NOT] NULL")
        op = token[0]
        if op not in _OPERATORS:
            words = (
                f"there is no operator {op}, only {' '.join(_OPERATORS)}; put a value that starts so in single quotes"
            )
            self._fail(words, place)
        negated, op = op.startswith("!~"), _NEGATED.get(op, op)
        if "~" not in op and (column := self._take_token("column")):
            self._pos = column.start()
            return self._made(start, operand, op, [], self._operand())
        place = self._pos
        value = self._literal()
        if "~" in op:
            self._check(place, lambda: re.compile(value.text))
        test = self._made(start, operand, op, [value])
        return Not(test) if negated else test

    def _is(self, start: int, operand: Operand) -> Condition:
        token = self._take_token("after is")
        if token is None:
            self._fail("expected [NOT] NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM after IS")
        what = token["what"].lower()
        if what in ("null", "unknown"):
            test = self._made(start, operand, "is null", [])
            return Not(test) if token["not"] else test
        if what in ("true", "false"):
            test = self._made(start, operand, "distinct", [_Value(what, quoted=False)])
        elif column := self._take_token("column"):
            self._pos = column.start()
            test = self._made(start, operand, "distinct", [], self._operand())
        else:
            test = self._made(start, operand, "distinct", [self._literal()])
        return test if bool(token["not"]) is (what in ("true", "false")) else Not(test)

    def _between(self, start: int, operand: Operand) -> Condition:
        low = self._literal()
        if not self._take_token("and"):
            self._fail("expected AND and the upper bound of BETWEEN")
        high = self._literal()
        return And((self._made(start, operand, ">=", [low]), self._made(start, operand, "<=", [high])))

    def _changed(self, start: int) -> Condition:
        opening = self._pos
        self._take_text("(")
        token = self._take_token("name")
        if token is None or token["row"] or not self._take_text(")"):
            self._fail("expected changed(COLUMN)", opening)
        name = _name(token)
        return self._made(start, Operand(name, "new"), "changed", [], Operand(name, "old"))

    # -- operands and values ---------------------------------------------------------------------------------------

    def _operand(self) -> Operand:
        token = self._take_token("name")
        if token is None:
            self._fail("expected the name of a column, NOT, changed(COLUMN) or a bracket")
        name, path = _name(token), self._path()
        if self._context and not (token["row"] or token["quoted"]):
            first, *members = name.split(".")
            if first == CONTEXT:
                return Operand(CONTEXT, is_property=True, path=(*members, *path))
        is_property = not token["row"] and not token["quoted"] and name in PROPERTIES
        if is_property and path:
            self._fail(f'{name} is no column here; the column of this name is "{name}"', token.start())
        row: Literal["", "old", "new"] = "old" if token["row"] == "old" else "new" if token["row"] else ""
        return Operand(name, row, is_property, path)

    def _path(self) -> tuple[str | int, ...]:
        steps: list[str | int] = []
        last = ""
        while arrow := self._take_token("arrow"):
            if last == "->>":
                self._fail("only the last arrow is ->>", arrow.start())
            last = arrow[0]
            if key := self._take_token("quoted"):
                steps.append(_unquoted(key))
            elif index := self._take_token("index"):
                steps.append(int(index[0]))
            else:
                self._fail("expected a key in single quotes or an index")
        if last == "->":
            self._fail("the last arrow must be ->>, which gives text")
        return tuple(steps)

    def _list(self) -> list[_Value]:
        opening = self._pos
        self._take_text("(")
        values = [self._literal()]
        while self._take_text(","):
            values.append(self._literal())
        if not self._take_text(")"):
            self._fail("expected a comma or the closing bracket of this list", opening)
        return values

    def _pattern(self) -> _Value:
        place = self._pos
        value = self._literal()
        self._check(place, lambda: like(value.text))
        return value

    def _literal(self) -> _Value:
        """A value in quotes, or a word."""
        start = self._pos
        if self._text.startswith("'", start):
            return self._quoted()
        if self._text.startswith('"', start):
            self._fail("a value stands in single quotes; a column after an operator is old.NAME or new.NAME")
        word = self._take_token("word")
        if word is None:
            self._fail("expected a value; one with blanks, commas or brackets stands in single quotes, no text is ''")
        if operator := _OPERATOR.search(word[0]):
            instead = f"write {_INSTEAD[operator[0]]}, not {operator[0]}; " if operator[0] in _INSTEAD else ""
            self._fail(f"{instead}put a value with {operator[0]} in single quotes", start + operator.start())
        if word[0].lower() == "null":
            self._fail("nothing equals NULL; use IS NULL, or 'null' for this text", start)
        return _Value(word[0], quoted=False)

    def _quoted(self) -> _Value:
        token = self._take_token("quoted")
        if token is None:
            self._fail("this quote is not closed; double a quote inside a quoted value")
        if self._pos < len(self._text) and not _word("after quote").match(self._text, self._pos):
            self._fail(f"the quoted value ends before this{_advice_on(self._text[self._pos :])}")
        return _Value(_unquoted(token), quoted=True)

    # -- the text --------------------------------------------------------------------------------------------------

    def _blanks(self) -> None:
        while self._pos < len(self._text) and self._text[self._pos].isspace():
            self._pos += 1

    def _take_token(self, kind: str) -> re.Match[str] | None:
        self._blanks()
        token = _word(kind).match(self._text, self._pos)
        if token is not None:
            self._pos = token.end()
            self._blanks()
        return token

    def _take_text(self, text: str) -> bool:
        self._blanks()
        found = self._text.startswith(text, self._pos)
        if found:
            self._pos += len(text)
            self._blanks()
        return found

    def _made(self, start: int, operand: Operand, op: str, values: list[_Value], other: Operand | None = None) -> Test:
        """A test whose text begins at `start` and ends here."""
        if operand == _OP and op not in _PATTERNS:
            values = [value._replace(text=value.text.lower()) for value in values]
            if not all(value.text in CHANGE_OPS for value in values):
                self._fail(f'op is one of {", ".join(CHANGE_OPS)}; a column of this name is "op"', start)
        secret = self._may_hide is not None and any(map(self._may_hide, (operand.name, *map(str, operand.path))))
        shown = f"{operand.name} {op} ..." if secret else self._text[start : self._pos].strip()
        numeric = bool(values) and not any(value.quoted for value in values) and all(map(_is_number, values))
        return Test(operand, op, tuple([value.text for value in values]), other, numeric, shown, secret)

    def _check(self, place: int, made: Callable[[], object]) -> None:
        """Raise OptionError if a pattern is invalid; the reason may quote it."""
        try:
            made()
        except (re.error, ValueError, OverflowError, RecursionError) as error:
            kind = "regular expression" if isinstance(error, re.error) else "pattern"
            self._fail(f"an error in the {kind}" if self._may_hide else f"{error} ({kind})", place)

    def _fail(self, words: str, place: int | None = None) -> NoReturn:
        """Raise an error with a caret under the place, or the place's number if the text cannot be shown."""
        text, at = self._text, self._pos if place is None else place
        if self._may_hide is not None or not text.isprintable():
            raise OptionError(f"--where, character {at + 1}: {words}")
        raise OptionError(f"--where: {words}\n{text}\n{' ' * _width(text[:at])}^")


def _advice_on(rest: str) -> str:
    """Advice about surplus text."""
    if rest.startswith(")"):
        return ": no bracket is open"
    if rest[:2] in _INSTEAD:
        return f"; write {_INSTEAD[rest[:2]]}, not {rest[:2]}"
    return "; double a quote inside a quoted value" if "'" in rest else ""


def _width(text: str) -> int:
    """The number of terminal columns of a text."""
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


def _name(token: re.Match[str]) -> str:
    quoted: str | None = token["quoted"]
    return quoted.replace('""', '"') if quoted else token["plain"]


def _unquoted(token: re.Match[str]) -> str:
    return str(token[1]).replace("''", "'")


def _is_number(value: _Value) -> bool:
    return re.fullmatch(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?", value.text, re.IGNORECASE) is not None
