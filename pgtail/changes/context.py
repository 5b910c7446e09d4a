"""The context of changes (--context): a logical message that their transaction sent before them, usually JSON.

It is what the client says of itself, not evidence.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Callable, Sequence

from msgspec import Struct

from pgtail.changes.operand import children, member
from pgtail.values import Undecoded
from pgtail.values.json import on_one_line
from pgtail.values.render import is_text, string


class Context(Struct, frozen=True):
    """The `content` of the message, and the same as outputs show it: masked, if --redact covers it."""

    content: bytes
    shown: bytes

    @property
    def keys(self) -> bytes:
        """`,"context":` with the object, or with a string if it is none; bytes that are not UTF-8 are base64."""
        if (document := _object(self.shown)) is not None:
            return b',"context":' + document
        if is_text(self.shown, "utf-8"):
            return b',"context":' + string(self.shown.decode())
        return b',"context_base64":"%b"' % binascii.b2a_base64(self.shown, newline=False)

    @property
    def column(self) -> str:
        """A text. Bytes that are none, and a text that begins with \\x, are written as PostgreSQL writes bytea."""
        if is_text(self.shown, "utf-8") and not self.shown.startswith(b"\\x"):
            return self.shown.decode()
        return f"\\x{self.shown.hex()}"

    def text(self, path: Sequence[str]) -> bytes:
        """What outputs show, or the text of a member of it; empty if there is none."""
        if not path:
            return self.shown
        try:
            return (member(self.shown.decode(), path) or "").encode()
        except (Undecoded, UnicodeError):
            return b""


def _object(content: bytes) -> bytes | None:
    """A JSON object on one line; None for anything else."""
    return on_one_line(content) if content.lstrip(b" \t\n\r").startswith(b"{") else None


def masked(content: bytes, hides: Callable[[str], bool], mask: Callable[[bytes], str]) -> bytes | None:
    """An object in which the members that `hides` names are masked, without NULLs; None for anything else."""
    document = _object(content)
    if document is None:
        return None
    members = [*children(document.decode().strip())]
    hidden = {name for name, value in members if value != "null" and hides(name)}
    if not hidden:
        return content
    texts = [json.dumps(mask(_text(value))) if name in hidden else value for name, value in members]
    names = [json.dumps(name) for name, _ in members]
    return f"{{{','.join(map(':'.join, zip(names, texts, strict=True)))}}}".encode()


def _text(value: str) -> bytes:
    """The text of a JSON value as ->> gives it."""
    return str(json.loads(value) if value.startswith('"') else value).encode(errors="surrogatepass")
