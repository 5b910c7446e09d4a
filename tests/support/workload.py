"""Runs a scenario on a real server and reads its slots, to test the formats for other programs.

Knows no format. Slots are read by SQL, in sessions with the settings that pgtail pins.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import psycopg

from pgtail.changes.assembler import Assembler
from pgtail.outputs import OutputOptions, open_output
from pgtail.pgoutput.decoder import Decoder
from pgtail.pgoutput.scalars import parse_lsn
from pgtail.pipeline.pipeline import Pipeline
from pgtail.postgres.connection import PINNED
from pgtail.values import Types
from tests.support.encode import frame
from tests.support.messages import messages_to
from tests.support.render import Sink, feed
from tests.support.servers import Database
from tests.tools.scenarios import SCENARIOS, Sessions

Message = tuple[str, bytes]
"""A message's LSN, and the message."""


class Written:
    """The bytes that an output wrote, and its messages."""

    def __init__(self, written: bytes, reported: list[str]) -> None:
        self.written = written
        self.reported = reported

    @property
    def lines(self) -> list[bytes]:
        """Without line ends; Unicode line separators do not end a line."""
        return self.written.split(b"\n")[:-1]


def write(output: str, messages: Iterable[Message], **options: Any) -> Written:
    """Messages through decoder, assembler and an output, as the commands do it."""
    sink, reported = Sink(), list[str]()
    assembler = Assembler(Types())
    made = open_output(output, sink, OutputOptions(**options))
    pipeline = Pipeline(assembler, made, note=lambda note: reported.append(note.text))
    try:
        with messages_to(reported.append):
            feed([frame(bytes(data), parse_lsn(lsn)) for lsn, data in messages], Decoder(), pipeline)
            pipeline.finish()
    finally:
        assembler.close()
    return Written(b"".join(sink.parts), reported)


@contextlib.contextmanager
def pinned(
    database: Database, others: Mapping[str, str] = MappingProxyType({})
) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """A session with the settings that pgtail pins, or with others in their place."""
    with contextlib.closing(database.connect()) as session:
        for name, value in {**PINNED, **others}.items():
            session.execute("SELECT set_config(%s, %s, false)", [name, value])
        yield session


def run_scenario(database: Database, name: str, slots: Sequence[tuple[str, str, bool]]) -> None:
    """Run a scenario's statements, with slots (name, plugin, two_phase) created when the scenario's are."""
    [scenario] = [one for one in SCENARIOS if one.name == name]
    setup, workload = scenario.statements()
    with contextlib.ExitStack() as stack:
        sessions = Sessions(database.conninfo(), stack)
        list(sessions.run(setup))
        make_slots(database, slots)
        list(sessions.run(workload))


def make_slots(database: Database, slots: Sequence[tuple[str, str, bool]]) -> None:
    with contextlib.closing(database.connect()) as session:
        for slot in slots:
            session.execute("SELECT pg_create_logical_replication_slot(%s, %s, false, %s)", slot)


def pgoutput(
    database: Database, slot: str, settings: Mapping[str, str] = MappingProxyType({}), /, **options: str
) -> list[Message]:
    """The messages of pgoutput in a slot, which is not consumed, under these settings instead of pgtail's."""
    chosen = {"proto_version": "1", "publication_names": "pub", **options}
    words = [word for pair in chosen.items() for word in pair]
    query = "SELECT lsn::text, data FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL, VARIADIC %s::text[])"
    with pinned(database, settings) as session:
        return [(str(lsn), bytes(data)) for lsn, data in session.execute(query, [slot, words])]


def published(database: Database) -> set[tuple[str, str]]:
    """The tables of publication pub."""
    return {
        (schema, table)
        for schema, table in database.query(
            "SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = 'pub'"
        )
    }
