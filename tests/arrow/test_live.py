"""Changes of a slot as Arrow record batches: beside those that the same slot gives as transactions."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pgtail import OptionError, ServerError, follow
from tests.support.limits import within
from tests.support.servers import Database
from tests.support.tail import terminate, wait_for_free_slots


@pytest.fixture
def shop(newest_database: Database) -> Database:
    """A database with two tables, a publication, and the slot s."""
    database = newest_database
    database.execute("CREATE TABLE t (id int PRIMARY KEY, n numeric(6,2), tags text[])", "CREATE TABLE u (id int)")
    database.execute("CREATE PUBLICATION p FOR ALL TABLES")
    database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    return database


def test_a_table_of_a_slot_is_typed_and_acknowledged(shop: Database) -> None:
    if shop.server.installation.major < 11:
        pytest.skip("PostgreSQL 10 does not send TRUNCATE, which is a part of this test")
    shop.execute(
        "INSERT INTO t VALUES (1, 1.50, '{a,\"b,1\",NULL}'), (2, 'NaN', NULL)",
        "INSERT INTO u VALUES (1)",
        "UPDATE t SET id = 3 WHERE id = 1",
        "DELETE FROM t WHERE id = 2",
        "TRUNCATE t",
    )
    for _ in range(2):  # nothing was acknowledged
        with follow(shop.conninfo(), slot="s", until="now") as stream:
            changes = stream.read_arrow("t", old=True).read_all()
        wait_for_free_slots(shop)
        rows = changes.to_pylist(maps_as_pydicts="strict")
        assert [row["_op"] for row in rows] == ["insert", "insert", "update", "delete", "truncate"]
        assert [row["id"] for row in rows] == [1, 2, 3, 2, None]
        assert (str(rows[0]["n"]), rows[0]["tags"], rows[1]["_rescued"]) == ("1.50", ["a", "b,1", None], {"n": "NaN"})
        assert rows[2]["_old"]["id"] == 1
        assert changes.schema.field("n").type == pa.decimal128(6, 2)
    with follow(shop.conninfo(), slot="s", until="now") as stream:
        for _ in stream.read_arrow("t"):
            stream.acknowledge()
    wait_for_free_slots(shop)
    with follow(shop.conninfo(), slot="s", until="now") as stream:
        assert not stream.read_arrow().read_all()


def test_all_changes_of_a_slot_are_those_of_its_transactions(shop: Database) -> None:
    shop.execute("INSERT INTO u VALUES (1)", "INSERT INTO t SELECT i, 7, '{}' FROM generate_series(1, 70000) i")
    shop.execute("DELETE FROM t WHERE id > 69000")
    with follow(shop.conninfo(), slot="s", until="now", values="text") as stream:
        expected = [(one.xid, change.op, change.table, change.new) for one in stream for change in one]
    wait_for_free_slots(shop)
    with follow(shop.conninfo(), slot="s", until="now") as stream:
        batches = list(stream.read_arrow())
    assert len(batches) > 1
    rows = pa.Table.from_batches(batches).select(["xid", "op", "table", "new"]).to_pylist(maps_as_pydicts="strict")
    assert [(*row.values(),) for row in rows] == expected


def test_a_batch_comes_when_no_more_changes_do_and_a_slow_stream_does_not_delay_it(shop: Database) -> None:
    with follow(shop.conninfo()) as stream:
        shop.execute("INSERT INTO t VALUES (1)")
        reader = stream.read_arrow("t")
        assert reader.read_next_batch()["id"].to_pylist() == [1]
        shop.execute("INSERT INTO t VALUES (2)", "INSERT INTO t VALUES (3)")
        ids: list[int] = []
        while len(ids) < 2:
            ids += reader.read_next_batch()["id"].to_pylist()
        assert ids == [2, 3]
        shop.execute("INSERT INTO t VALUES (4)")
        transaction = stream.next(within(20))  # as transactions again
        assert transaction is not None
        assert [change.key for change in transaction] == [{"id": 4}]


def test_masked_values_stay_masked(shop: Database) -> None:
    shop.execute("INSERT INTO t VALUES (1, 2, '{secret}')")
    with follow(shop.conninfo(), slot="s", until="now", redact="t.tags") as stream:
        table = stream.read_arrow("t").read_all()
    assert "secret" not in str(table.to_pylist())
    assert table["id"].to_pylist() == [1]


def test_the_end_of_a_connection_comes_after_all_rows(shop: Database) -> None:
    shop.execute("INSERT INTO t VALUES (1)")
    with follow(shop.conninfo(), slot="s", reconnect=False) as stream:
        reader = stream.read_arrow("t")
        shop.execute("INSERT INTO t VALUES (2)")
        terminate(shop)
        assert reader.read_next_batch()["id"].to_pylist()[0] == 1
        with pytest.raises(ServerError):
            list(reader)


def test_a_table_without_changes_is_an_error(shop: Database) -> None:
    shop.execute("INSERT INTO t VALUES (1)")
    with follow(shop.conninfo(), slot="s", until="now", where="id > 9") as stream:
        table = stream.read_arrow("t").read_all()
    assert (table.num_rows, table.schema.names[0]) == (0, "id")
    with follow(shop.conninfo(), slot="s", until="now") as stream, pytest.raises(OptionError, match="did you mean"):
        stream.read_arrow("public.tt")
