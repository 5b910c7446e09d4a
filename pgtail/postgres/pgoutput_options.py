"""Options of pgoutput: which version supports which, and the text of START_REPLICATION.

Versions: src/backend/replication/pgoutput/pgoutput.c, parse_output_parameters, in each release.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from pgtail.errors import OptionError
from pgtail.options import option
from pgtail.pgoutput.scalars import lsn_text

Streaming: TypeAlias = Literal["off", "on", "parallel"]
Origin: TypeAlias = Literal["any", "none"]

_protocol = partial(option, group="protocol")
_HIGHEST: Final = ((16, 4), (15, 3), (14, 2), (10, 1))
"""(server version, highest protocol version), newest first."""


class Wanted(Struct, frozen=True):
    """The options that the user requested. None means the best value for the server."""

    proto_version: int | None = _protocol(
        "--proto-version", kind="number", metavar="N", help="Protocol version; the default is the server's highest."
    )
    binary: bool = _protocol("--binary", default=False, help="Send values in binary form, if their types have one.")
    messages: bool | None = _protocol(
        "--messages/--no-messages", help="Send logical messages; the default from PostgreSQL 14 on."
    )
    origin: Origin = _protocol(
        "--origin",
        kind=("any", "none"),
        default="any",
        help="none: leave out changes that were replicated from elsewhere.",
    )
    streaming: Streaming | None = _protocol(
        "--streaming",
        kind=("off", "on", "parallel"),
        help="Send large transactions before they commit; the default is on from PostgreSQL 14.",
    )
    two_phase: bool = _protocol(
        "--two-phase", default=False, help="With --create-slot or a temporary slot: decode PREPARE TRANSACTION."
    )


class Options(Struct, frozen=True):
    """The options of START_REPLICATION. None means that the option is omitted."""

    proto_version: int
    publications: tuple[str, ...]
    binary: bool | None = None
    messages: bool | None = None
    streaming: Streaming | None = None
    origin: Origin | None = None

    def pairs(self) -> list[tuple[str, str]]:
        pairs = [
            ("proto_version", str(self.proto_version)),
            ("publication_names", ",".join(map(identifier, self.publications))),
        ]
        for name in ("binary", "messages", "streaming", "origin"):
            value: bool | str | None = getattr(self, name)
            if value is not None:
                pairs.append((name, value if isinstance(value, str) else "on" if value else "off"))
        return pairs

    def start_replication(self, slot: str, lsn: int) -> str:
        """The command (manual: streaming replication protocol)."""
        options = ", ".join([f"{name} {literal(value)}" for name, value in self.pairs()])
        return f"START_REPLICATION SLOT {identifier(slot)} LOGICAL {lsn_text(lsn)} ({options})"

    def words(self) -> str:
        """The options in use, for messages."""
        return ", ".join([f"{name} {value}" for name, value in self.pairs() if name != "publication_names"])


def resolve(wanted: Wanted, major: int, publications: Sequence[str]) -> Options:
    """The options for a server of version `major` (16). Raises OptionError for what it does not support."""
    highest = next(proto for version, proto in _HIGHEST if major >= version)
    proto = highest if wanted.proto_version is None else wanted.proto_version
    if not 1 <= proto <= highest:
        since = next((version for version, known in reversed(_HIGHEST) if known >= proto), None)
        need = "no server supports it yet" if since is None else f"it needs PostgreSQL {since}"
        raise OptionError(f"--proto-version {proto}: {need}; this is {major}, which goes up to {highest}")
    if wanted.binary:
        _need(major, 14, "--binary")
    if wanted.messages:
        _need(major, 14, "--messages")
    return Options(
        proto_version=proto,
        publications=tuple(publications),
        binary=True if wanted.binary else None,
        messages=wanted.messages is not False if major >= 14 else None,
        streaming=_streaming(wanted, major, proto),
        origin=_origin(wanted, major),
    )


def _streaming(wanted: Wanted, major: int, proto: int) -> Streaming | None:
    if wanted.streaming is None:
        return "on" if proto >= 2 else None
    if wanted.streaming == "off":
        return "off" if major >= 14 else None
    since, least = (16, 4) if wanted.streaming == "parallel" else (14, 2)
    _need(major, since, f"--streaming {wanted.streaming}")
    _need_proto(proto, least, f"--streaming {wanted.streaming}")
    return wanted.streaming


def _origin(wanted: Wanted, major: int) -> Origin | None:
    if wanted.origin == "any":
        return "any" if major >= 16 else None
    _need(major, 16, "--origin none")
    return "none"


def check_two_phase(wanted: Wanted, major: int) -> None:
    """Check that a slot with two-phase decoding can be created and read. Raises OptionError."""
    _need(major, 15, "--two-phase")
    if wanted.proto_version is not None:
        _need_proto(wanted.proto_version, 3, "--two-phase")


def _need(major: int, since: int, option: str) -> None:
    if major < since:
        raise OptionError(f"{option} needs PostgreSQL {since} or later; this is {major}")


def _need_proto(proto: int, least: int, option: str) -> None:
    if proto < least:
        raise OptionError(f"{option} needs --proto-version {least} or higher, not {proto}")


def identifier(name: str) -> str:
    """A quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A quoted string as the replication grammar reads it: no escapes but the doubled quote."""
    return "'" + text.replace("'", "''") + "'"
