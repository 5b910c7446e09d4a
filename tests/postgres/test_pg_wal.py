"""What dropping slots frees: compared with pg_wal after the slots were dropped, and a checkpoint."""

from __future__ import annotations

import pytest

from pgtail.postgres import slot_report
from pgtail.postgres.connection import Connector, parameters
from pgtail.postgres.pg_wal import PgWal, Step, pg_wal
from tests.conftest import StartServer
from tests.doctor.test_doctor import role
from tests.support.servers import Database, installations, some_versions, versions
from tests.support.standbys import standby_of
from tests.support.tail import wait_for

FILE = 16 << 20


def known(database: Database, conninfo: str = "") -> PgWal:
    """What pgtail says."""
    with Connector(parameters(conninfo or database.conninfo())).ordinary() as connection:
        found = pg_wal(connection, slot_report.reports(connection, database.version))
    assert found is not None
    return found


def files(database: Database) -> dict[str, int]:
    return {str(name): int(size) for name, size in database.query("SELECT name, size FROM pg_ls_waldir()")}


def write(database: Database, count: int) -> None:
    """Fill so many files of WAL."""
    for _ in range(count):
        database.execute("INSERT INTO t VALUES (1)", "SELECT pg_switch_wal()")


def physical(database: Database, name: str) -> None:
    database.execute("CHECKPOINT")  # it begins at the last one
    database.query(f"SELECT pg_create_physical_replication_slot('{name}', true)")


def logical(database: Database, name: str) -> None:
    database.query(f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")


def drop(database: Database, *names: str) -> set[str]:
    """Drop slots; returns the names of the files that are gone after a checkpoint."""
    before = files(database)
    for name in names:
        database.query(f"SELECT pg_drop_replication_slot('{name}')")
    database.execute("CHECKPOINT")
    return before.keys() - files(database).keys()


@pytest.mark.parametrize("version", versions())
def test_each_step_frees_what_it_says(version: str, start_server: StartServer) -> None:
    """Also of physical slots, and of slots that hold the same files."""
    installation = installations()[version]
    more = {"wal_recycle": False} if installation.major >= 12 else {}
    database = Database(start_server(installation, **more), "postgres")
    database.execute("CREATE TABLE t (id int)")
    physical(database, "standby1")
    write(database, 2)
    logical(database, "cdc")
    logical(database, "also")
    write(database, 3)
    physical(database, "standby2")
    write(database, 1)
    logical(database, "new")
    database.execute("CHECKPOINT", "CHECKPOINT")
    wal = known(database)
    assert wal.steps == (Step(("standby1",), 2 * FILE), Step(("cdc", "also"), 3 * FILE), Step(("standby2",), FILE))
    assert wal.size == sum(files(database).values())
    assert wal.unlimited
    assert [wal.freed(name) for name in ("standby1", "cdc", "also", "standby2", "new")] == [
        *(2 * FILE, 0, 3 * FILE, FILE, 0)
    ]
    assert wal.words().startswith(f"pg_wal has {wal.size >> 20}.0 MB. Dropping standby1 frees 32.0 MB, then cdc and")
    assert wal.words().endswith(
        " also 48.0 MB, then standby2 16.0 MB, at the next checkpoint (which may keep files for reuse, up to"
        " max_wal_size)."
    )
    assert drop(database, "cdc") == drop(database, "also") == set(), "standby1 needs the same files"
    logical(database, "cdc")
    left = known(database).size
    assert left is not None
    assert known(database).steps == (Step(("standby1",), 5 * FILE), Step(("standby2",), FILE))
    assert len(drop(database, "standby1")) == 5
    assert len(drop(database, "standby2")) == 1
    after = known(database)
    assert after.steps == ()
    if more:
        assert after.size == left - 6 * FILE
    assert after.words().endswith(" Dropping slots frees none of it.")


@pytest.mark.parametrize("version", versions())
def test_what_wal_keep_size_keeps_is_not_freed(version: str, start_server: StartServer) -> None:
    installation = installations()[version]
    keep = {"wal_keep_size": "48MB"} if installation.major >= 13 else {"wal_keep_segments": 3}
    database = Database(start_server(installation, **keep), "postgres")
    database.execute("CREATE TABLE t (id int)")
    logical(database, "cdc")
    write(database, 3)
    database.execute("CHECKPOINT", "CHECKPOINT")
    assert known(database).steps == ()
    write(database, 1)
    database.execute("CHECKPOINT", "CHECKPOINT")
    assert known(database).steps == (Step(("cdc",), FILE),)
    assert len(drop(database, "cdc")) == 1


@pytest.mark.parametrize("version", some_versions(since=13))
def test_a_slot_beyond_its_limit_is_not_worth_dropping(version: str, start_server: StartServer) -> None:
    """The next checkpoint invalidates it."""
    database = Database(start_server(installations()[version], max_slot_wal_keep_size="48MB"), "postgres")
    database.execute("CREATE TABLE t (id int)")
    logical(database, "beyond")
    write(database, 2)
    logical(database, "cdc")
    write(database, 2)
    wal = known(database)
    assert (wal.unlimited, wal.steps) == (False, (Step(("cdc",), 2 * FILE),))
    database.execute("CHECKPOINT")
    assert known(database).steps == (Step(("cdc",), 2 * FILE),)
    assert len(drop(database, "cdc")) == 2


@pytest.mark.parametrize("version", versions())
def test_what_is_not_archived_is_not_freed(version: str, start_server: StartServer) -> None:
    installation = installations()[version]
    database = Database(start_server(installation, archive_mode="on", archive_command="false"), "postgres")
    database.execute("CREATE TABLE t (id int)")
    logical(database, "cdc")
    write(database, 2)
    database.execute("CHECKPOINT", "CHECKPOINT")
    wal = known(database)
    assert wal.steps == (() if installation.major >= 12 else None), "until 11, the server does not list it"
    assert drop(database, "cdc") == set()
    with role(database, "mere", "REPLICATION") as conninfo:
        assert known(database, conninfo) == PgWal(unlimited=True, size=None, steps=None)
    assert PgWal(unlimited=True, size=None, steps=None).words() == ""


def test_a_role_that_may_not_list_pg_wal_is_not_told_its_size(newest_database: Database) -> None:
    database = newest_database
    database.execute("CREATE TABLE t (id int)")
    logical(database, "cdc")
    write(database, 2)
    with role(database, "mere", "REPLICATION") as conninfo:
        wal = known(database, conninfo)
        assert (wal.size, wal.steps) == (None, known(database).steps)
        assert wal.words().startswith("Dropping ")


def test_many_slots_are_counted() -> None:
    steps = tuple(Step((f"s{number}",), number << 20) for number in range(1, 7))
    words = PgWal(unlimited=True, size=1 << 30, steps=(Step(tuple("abcde"), 1 << 20), *steps)).words()
    assert words == (
        "pg_wal has 1.0 GB. Dropping a, b, c and 2 more frees 1.0 MB, then s1 1.0 MB, then s2 2.0 MB, then 4 more slots"
        " 18.0 MB, at the next checkpoint (which may keep files for reuse, up to max_wal_size)."
    )


def test_a_standby_frees_at_least_what_it_says(start_server: StartServer) -> None:
    """Its restartpoints follow the checkpoints of its primary."""
    primary = Database(start_server(), "postgres")
    primary.execute("CREATE TABLE t (id int)")
    physical(primary, "standby")
    with standby_of(primary.server, physical_slot="standby") as server:
        standby = Database(server, "postgres")
        standby.query("SELECT pg_create_physical_replication_slot('cascaded', true)")
        write(primary, 3)

        def steps() -> tuple[Step, ...] | None:
            primary.execute("CHECKPOINT")
            standby.execute("CHECKPOINT")
            return known(standby).steps

        [step] = wait_for("restartpoint", steps)
        assert step.slots == ("cascaded",)
        before = files(standby)
        standby.query("SELECT pg_drop_replication_slot('cascaded')")
        wait_for("the end", lambda: steps() == () and len(before.keys() - files(standby).keys()) >= step.bytes // FILE)
