"""The doctor on real servers with deliberate problems: it finds them, nothing else, and its cures work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from msgspec.structs import replace

from pgtail import doctor
from pgtail.doctor import provider, server
from pgtail.doctor.base import Context, Finding, Severity
from pgtail.postgres.catalog import server_facts
from pgtail.postgres.connection import Connector, parameters
from pgtail.postgres.ddl_trigger import install_sql
from tests.conftest import StartServer
from tests.support.servers import Database, since
from tests.support.tail import stream, wait_for


def examine(database: Database | str) -> list[Finding]:
    """All findings, but for a bug that every server of the release has: one test is about these."""
    return [one for one in everything(database) if (one.check, one.severity) != ("bugs", Severity.PROBLEM)]


def everything(database: Database | str) -> list[Finding]:
    conninfo = database if isinstance(database, str) else database.conninfo()
    return [finding for _, finding in doctor.examine(Connector(parameters(conninfo))).all()]


def of(findings: list[Finding], check: str) -> list[Finding]:
    return [finding for finding in findings if finding.check == check]


def one(findings: list[Finding], check: str) -> Finding:
    [found] = of(findings, check)
    return found


@contextmanager
def limited(database: Database) -> Iterator[None]:
    """Slots may not retain WAL without a limit: those that nobody reads are no finding. Since PostgreSQL 13."""
    database.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '10GB'", "SELECT pg_reload_conf()")
    wait_for("the limit", lambda: database.value("SHOW max_slot_wal_keep_size") == "10GB")
    try:
        yield
    finally:
        database.execute("ALTER SYSTEM RESET max_slot_wal_keep_size", "SELECT pg_reload_conf()")


def wrong(findings: list[Finding]) -> dict[str, Severity]:
    """The findings that are not ok."""
    return {one.check: one.severity for one in findings if one.severity is not Severity.OK}


def publish(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE PUBLICATION p FOR TABLE t")


@contextmanager
def role(database: Database, name: str, rights: str = "") -> Iterator[str]:
    database.execute(f"CREATE ROLE {name} LOGIN {rights}")
    try:
        yield database.conninfo(user=name)
    finally:
        database.execute(f"DROP OWNED BY {name}", f"DROP ROLE {name}")


# -- server ----------------------------------------------------------------------------------------------------


def test_healthy_server_has_no_problems(database: Database) -> None:
    publish(database)
    database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    findings = examine(database)
    assert wrong(findings) == {"slot_wal": Severity.WARNING}, "nobody reads it, and nothing limits it"
    assert one(findings, "wal_level").text == "wal_level is logical"
    sent = "inserts, updates and deletes, no truncates"
    sent = sent if database.version < 11 else "inserts, updates, deletes and truncates"
    assert f"1 table, {sent}" in one(findings, "publications").text
    assert one(findings, "slot_wal").subjects == ("s",)


def test_a_server_without_alter_system(start_server: StartServer) -> None:
    """It is the newest one; 17 and later have the setting."""
    found = start_server(allow_alter_system=False, wal_sender_timeout="5s")
    database = Database(found, "postgres")
    publish(database)
    [finding] = of_severity(database, "timeouts")
    assert "wal_sender_timeout is 5 s" in finding.text
    where = "-- In the server's configuration file (allow_alter_system is off): "
    assert finding.cure == (f"{where}wal_sender_timeout = '1min', and reload it.",)
    found.configure(wal_sender_timeout="1min")
    found.reload()
    wait_for("cure", lambda: wrong(examine(database)) == {})


def test_releases_and_their_bugs() -> None:
    lost, lists, prepared, aborts = server.BUGS
    assert lost.fixed_in(130022) == "14.18"
    assert [lost.fixed_in(version) for version in (160008, 160009, 170004, 170005)] == ["16.9", None, "17.5", None]
    assert lost.fixed_in(180000) is None
    assert [lists.fixed_in(version) for version in (140000, 150001, 150002)] == [None, "15.2", None]
    assert [prepared.fixed_in(version) for version in (130000, 180004, 180006)] == [None, "18.6", None]
    assert [aborts.fixed_in(version) for version in (170000, 180006, 180007, 190000)] == [None, "18.7", None, None]


def test_the_bugs_of_this_release(database: Database) -> None:
    version = server_version(database)
    found = of(everything(database), "bugs")
    assert [finding.severity for finding in found if finding.severity is Severity.PROBLEM] == [
        Severity.PROBLEM for bug in server.BUGS if bug.loses and bug.fixed_in(version)
    ]
    if database.version < 14:
        return
    assert [finding.severity for finding in found] == [Severity.OK], "the database has nothing that a bug needs"
    publish(database)
    database.execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput', false, true)")
    [finding] = of(examine(database), "bugs")
    assert ("bug 19556" in finding.text) == (finding.severity is Severity.WARNING)
    assert finding.severity is (Severity.OK if server.BUGS[2].fixed_in(version) is None else Severity.WARNING)


@since(18)
def test_stray_aborts_need_large_transactions(database: Database) -> None:
    if server.BUGS[3].fixed_in(server_version(database)) is None:
        pytest.skip("this release does not have the bug")
    publish(database)
    database.execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    assert of_severity(database, "bugs") == []
    database.execute(
        "INSERT INTO t SELECT generate_series(1, 5000)",
        "SET logical_decoding_work_mem = '64kB'; SELECT count(*) FROM pg_logical_slot_peek_binary_changes("
        "'s', NULL, NULL, 'proto_version', '1', 'publication_names', 'p')",
    )
    finding = wait_for("statistics", lambda: next(iter(of_severity(database, "bugs")), None))
    assert "bug 19616" in finding.text


def server_version(database: Database) -> int:
    return int(database.value("SELECT current_setting('server_version_num')::int"))


@contextmanager
def context_of(database: Database) -> Iterator[Context]:
    """The context of a real server; tests replace parts of it."""
    connector = Connector(parameters(database.conninfo()))
    with connector.ordinary() as connection:
        yield Context(connection, connector, server_facts(connection), {})


def test_a_list_of_output_plugins(newest_database: Database) -> None:
    assert server.allowed('pgoutput, "my lib",$libdir/x , "a""b"') == ["pgoutput", "my lib", "$libdir/x", 'a"b']
    newest_database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    with context_of(newest_database) as context:
        assert list(server.output_plugins(context)) == [], "the server has no such list"
        listed = replace(context, settings={"output_plugin_libraries": "pgoutput, test_decoding"})
        assert [finding.severity for finding in server.output_plugins(listed)] == [Severity.OK]
        listed = replace(context, settings={"output_plugin_libraries": "wal2json"})
        [finding] = server.output_plugins(listed)
        assert finding.severity is Severity.PROBLEM
        statement = "SET output_plugin_libraries = 'wal2json', 'pgoutput';"
        assert f"ALTER SYSTEM {statement}" == finding.cure[1]
        # Every server has this setting, and its values have the same form.
        context.connection.execute(statement.replace("output_plugin_libraries", "session_preload_libraries").encode())
        shown = context.only("the list", "SHOW session_preload_libraries").text("session_preload_libraries")
        assert server.allowed(shown) == ["wal2json", "pgoutput"]
        listed = replace(context, settings={"output_plugin_libraries": "wal2json"})
        newest_database.query("SELECT pg_create_logical_replication_slot('r', 'pgoutput')")
        assert len(list(server.output_plugins(listed))) == 1, (
            "one cure for all of them: a second one would undo the first"
        )


# -- access ----------------------------------------------------------------------------------------------------


def test_a_check_without_permission_is_reported(newest_database: Database) -> None:
    publish(newest_database)
    newest_database.execute("REVOKE SELECT ON pg_prepared_xacts FROM PUBLIC")
    try:
        with role(newest_database, "mere", "REPLICATION") as conninfo:
            finding = one(examine(conninfo), "transactions")
            assert finding.severity is Severity.WARNING
            assert finding.text == "could not be checked: permission denied for view pg_prepared_xacts"
    finally:
        newest_database.execute("GRANT SELECT ON pg_prepared_xacts TO PUBLIC")


@pytest.mark.parametrize("known", provider.PROVIDERS, ids=lambda known: known.name)
def test_providers_are_detected_and_have_their_own_cures(newest_database: Database, known: provider.Provider) -> None:
    newest_database.execute(f"CREATE ROLE {known.role}")
    try:
        with role(newest_database, "mere") as conninfo:
            report = doctor.examine(Connector(parameters(conninfo)))
            assert report.provider is known
            cure = one([finding for _, finding in report.all()], "replication_right").cure
            hint = known.hints.get("replication_right")
            assert (f"-- On {known.name}: {hint}" in cure) == (hint is not None)
    finally:
        newest_database.execute(f"DROP ROLE {known.role}")
    assert known.hint("timeouts", ("ALTER SYSTEM SET a = b;",)) == known.settings
    assert known.hint("toast", ("ALTER TABLE t;",)) is None


# -- publications and tables -----------------------------------------------------------------------------------

TABLES = (
    "CREATE TABLE with_key (id int PRIMARY KEY, v int)",
    "CREATE TABLE bare (id int, v int)",
    'CREATE TABLE "Un ique" (id int NOT NULL UNIQUE, v int)',
    "CREATE TABLE nullable (id int UNIQUE, v int)",
    "CREATE TABLE deferred (id int PRIMARY KEY DEFERRABLE, v int)",
    "CREATE TABLE nothing (id int PRIMARY KEY, v int)",
    "ALTER TABLE nothing REPLICA IDENTITY NOTHING",
    "CREATE TABLE complete (id int, v int)",
    "ALTER TABLE complete REPLICA IDENTITY FULL",
    "CREATE TABLE by_index (id int NOT NULL UNIQUE, v int)",
    "ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_id_key",
    "CREATE TABLE index_gone (id int NOT NULL CONSTRAINT gone UNIQUE, v int)",
    "ALTER TABLE index_gone REPLICA IDENTITY USING INDEX gone",
    "ALTER TABLE index_gone DROP CONSTRAINT gone",
    "CREATE TABLE parts (id int, v int) PARTITION BY RANGE (id)",
    "CREATE TABLE part_bare PARTITION OF parts FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE part_key PARTITION OF parts (PRIMARY KEY (id)) FOR VALUES FROM (10) TO (20)",
)
NAMES = (
    "with_key", "bare", '"Un ique"', "nullable", "deferred", "nothing", "complete", "by_index", "index_gone",
    "part_bare", "part_key",
)  # fmt: skip


def refusing(database: Database, names: tuple[str, ...]) -> set[str]:
    """The tables where the server refuses an UPDATE."""
    found = set()
    with database.connect() as session:
        for name in names:
            try:
                session.execute(f"UPDATE {name} SET v = 1 WHERE false".encode())
            except (psycopg.errors.ObjectNotInPrerequisiteState, psycopg.errors.InvalidColumnReference):
                found.add(f"public.{name}")
    return found


@pytest.mark.parametrize("via_root", [False, True])
def test_tables_that_refuse_updates_are_found_and_cured(database: Database, via_root: bool) -> None:
    database.execute(*TABLES, "CREATE PUBLICATION p FOR ALL TABLES")
    if via_root:
        if database.version < 13:
            pytest.skip("PostgreSQL 13 has it first")
        database.execute("ALTER PUBLICATION p SET (publish_via_partition_root = true)")
    truth = refusing(database, NAMES)
    assert len(truth) == 7
    finding = one(examine(database), "replica_identity")
    assert finding.severity is Severity.PROBLEM
    assert set(finding.subjects) == truth
    assert 'ALTER TABLE public."Un ique" REPLICA IDENTITY USING INDEX "Un ique_id_key";' in finding.cure
    database.execute(*finding.cure)
    assert refusing(database, NAMES) == set()
    assert one(examine(database), "replica_identity").severity is Severity.OK


def test_publications_of_inserts_need_no_identity(newest_database: Database) -> None:
    newest_database.execute(*TABLES, "CREATE PUBLICATION p FOR ALL TABLES WITH (publish = 'insert')")
    findings = examine(newest_database)
    assert one(findings, "replica_identity").severity is Severity.OK
    assert "no updates and no deletes" in one(findings, "publications").text
    newest_database.execute("DROP PUBLICATION p", "CREATE PUBLICATION empty")
    findings = examine(newest_database)
    assert wrong(findings) == {"publications": Severity.WARNING}
    assert one(findings, "replica_identity").text == "no table is published"


def test_toast_that_updates_leave_out(database: Database) -> None:
    database.execute(
        *[f"CREATE TABLE {name} (id int PRIMARY KEY, n int, v text)" for name in ("large", "small", "complete")],
        "ALTER TABLE large ALTER v SET STORAGE EXTERNAL",
        "ALTER TABLE complete ALTER v SET STORAGE EXTERNAL",
        "ALTER TABLE complete REPLICA IDENTITY FULL",
        "CREATE PUBLICATION p FOR ALL TABLES",
    )
    database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    for name, size in (("large", 9000), ("small", 10), ("complete", 9000)):
        database.execute(f"INSERT INTO {name} VALUES (1, 1, repeat('x', {size}))", f"UPDATE {name} SET n = 2")
    lines, _ = stream(database, "-S", "s", "--until", "now", "--op", "update", "--fill-unchanged")
    truth = {f"public.{line['table']}" for line in lines if line.get("unchanged") and "v" not in line["new"]}
    assert truth == {"public.large"}
    finding = wait_for("statistics", lambda: next(iter(of_severity(database, "toast")), None))
    assert set(finding.subjects) == truth
    database.execute(*finding.cure[1:])
    assert one(examine(database), "toast").severity is Severity.OK


def of_severity(database: Database, check: str) -> list[Finding]:
    return [finding for finding in of(examine(database), check) if finding.severity is not Severity.OK]


@since(14)
def test_event_triggers_that_send_schema_changes(database: Database) -> None:
    publish(database)
    assert of(examine(database), "ddl_triggers") == []
    database.execute(install_sql(with_statement=True))
    found = one(examine(database), "ddl_triggers")
    assert found.severity is Severity.OK
    assert (
        found.text
        == "schema changes are sent as messages (pgtail ddl, version 1, with statement, owned by role postgres)"
    )
    database.execute("ALTER EVENT TRIGGER pgtail_ddl DISABLE")
    found = one(examine(database), "ddl_triggers")
    assert found.severity is Severity.WARNING
    assert "schema changes are not all sent: pgtail_ddl is missing or disabled" in found.text
    assert found.cure[1].startswith("-- pgtail ddl install ")
    database.execute(
        "ALTER EVENT TRIGGER pgtail_ddl ENABLE", "COMMENT ON FUNCTION pgtail.ddl() IS 'pgtail ddl, version 0'"
    )
    found = one(examine(database), "ddl_triggers")
    assert (found.severity, "version 0, owned by role postgres" in found.text) == (Severity.WARNING, True)
