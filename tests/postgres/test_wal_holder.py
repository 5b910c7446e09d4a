"""What holds the WAL of a slot: what a standby knows, and transactions that are too young to tell."""

from __future__ import annotations

from msgspec.structs import replace

from pgtail.postgres.connection import Connector, parameters
from pgtail.postgres.wal_holder import WalHolder, holder, open_transactions
from tests.conftest import StartServer
from tests.support.servers import Database, installations
from tests.support.standbys import standby_of
from tests.support.tail import wait_for


def test_a_standby_knows_the_oldest_transaction_of_its_primary(start_server: StartServer) -> None:
    [*_, newest] = installations().values()
    primary = Database(start_server(newest), "postgres")
    primary.execute("CREATE TABLE t (id int)")
    with standby_of(primary.server) as server, primary.connect() as session:
        session.execute("BEGIN")
        session.execute("INSERT INTO t VALUES (1)")
        xid = session.execute("SELECT txid_current()").fetchone()
        primary.execute("CREATE TABLE later (id int)")  # it is running if it is before one that was completed

        def words() -> list[str]:
            with Connector(parameters(Database(server, "postgres").conninfo())).ordinary() as connection:
                return [one.words() for one in open_transactions(connection)]

        assert xid is not None
        wait_for("replay", lambda: words() == [f"transaction {xid[0]} of the primary"])
        session.execute("COMMIT")
        wait_for("replay", lambda: words() == [])


def test_a_young_transaction_comes_after_what_is_known(newest_database: Database) -> None:
    newest_database.execute("CREATE TABLE t (id int)")
    with newest_database.connect() as session:
        session.execute("BEGIN")
        session.execute("INSERT INTO t VALUES (1)")
        with Connector(parameters(newest_database.conninfo())).ordinary() as connection:
            [transaction] = open_transactions(connection)
    who = transaction.words()
    old, young, short = [replace(transaction, xid_age=5, seconds=seconds) for seconds in (15, 14, 0)]
    assert holder([old], 6, active=True).words() == f"by {who}, open for 15 s (idle in transaction)"
    assert holder([short], 5, active=True).words() == f"by {who}, open for 0 s (idle in transaction)"
    text = holder([young], 6, active=True).words()
    assert text == f"until the next checkpoint, then by {who}, open for 14 s (idle in transaction)"
    assert holder([short], 6, active=True) == WalHolder("checkpoint")
    assert holder([short], 6, active=False) == WalHolder("reader")
