"""`pgtail show` as its users run it: every output, moments, conditions, what is missing."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgtail.demo.server import EmbeddedServer
from pgtail.pgoutput.scalars import lsn_text, parse_lsn
from tests.support.run import Result, here
from tests.support.run_process import pgtail
from tests.support.servers import Database, fresh_database

pytest.importorskip("pyarrow", reason="the extra `arrow` is not installed")

BIG = "x" * 3000


def show(*arguments: str | Path, status: int = 0) -> Result:
    ran = here("show", *arguments, "--utc")
    assert ran.status == status, ran.stderr
    return ran


@pytest.fixture(scope="module")
def shop(newest_server: EmbeddedServer) -> Iterator[Database]:
    with fresh_database(newest_server) as created:
        yield created


@pytest.fixture(scope="module")
def capture(shop: Database, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three orders in a snapshot, and what became of them; other tables without a snapshot."""
    path = tmp_path_factory.mktemp("show") / "capture"
    shop.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, status text, total numeric(10,2), note text)",
        "ALTER TABLE orders ALTER note SET STORAGE EXTERNAL",
        f"INSERT INTO orders VALUES (1, 'new', 10.50, NULL), (2, 'new', 7, '{BIG}'), (3, 'new', NULL, NULL)",
        "CREATE PUBLICATION p FOR TABLE orders",
    )
    record = ("record", shop.conninfo(), "-S", "show", "-P", "p", "-D", str(path), "--until", "now")
    pgtail(*record, "--snapshot")
    shop.execute("CREATE TABLE late (id int PRIMARY KEY, v text)", "ALTER PUBLICATION p ADD TABLE late")
    shop.execute(
        "UPDATE orders SET status = 'paid' WHERE id = 2",
        "UPDATE orders SET total = 'NaN' WHERE id = 3",
        "DELETE FROM orders WHERE id = 1",
        "INSERT INTO late VALUES (1, 'a')",
        "ALTER TABLE orders ADD extra int DEFAULT 5",
        "UPDATE orders SET status = 'sent' WHERE id = 2",
        "ALTER TABLE late RENAME v TO w",
        "INSERT INTO late VALUES (2, 'b')",
    )
    pgtail(*record)
    return path


def rows(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_json_tells_the_values_that_are_not_known(capture: Path) -> None:
    two, three = rows(show(capture, "orders").stdout.decode())
    assert two["new"] == {"id": 2, "status": "sent", "total": 7.00, "note": BIG, "extra": 5}
    assert (two["op"], two["table"], "unchanged" in two) == ("snapshot", "orders", False)
    assert (three["new"], three["unchanged"]) == ({"id": 3, "status": "new", "total": "NaN", "note": None}, ["extra"])


def test_tables_lines_and_csv(capture: Path) -> None:
    table = show(capture, "orders", "-o", "table", "--columns", "status,extra").stdout.decode()
    assert "snapshot of public.orders" in table
    assert "SNAPSHOT public.orders  id=2  status 'sent'  extra 5\n" in table
    assert "SNAPSHOT public.orders  id=3  status 'new'  extra (unchanged)\n" in table
    assert "2 rows" in table
    line, other = show(capture, "orders", "-o", "line", "--columns", "total").stdout.decode().splitlines()
    assert line.endswith("[id=2]      total=7.00")
    assert other.endswith("[id=3]      total=NaN")
    found = list(csv.DictReader(io.StringIO(show(capture, "public.orders", "-o", "csv").stdout.decode())))
    assert [(row["id"], row["extra"], row["_not_sent"]) for row in found] == [("2", "5", ""), ("3", "", "{extra}")]


def test_sql_makes_the_table_again(capture: Path, shop: Database) -> None:
    [lsn] = {row["commit_lsn"] for row in rows(show(capture, "orders").stdout.decode())}
    sql = show(capture, "orders", "--before", str(lsn), "-o", "sql").stdout.decode()
    shop.execute(
        "CREATE SCHEMA again", "CREATE TABLE again.orders (LIKE orders)", "ALTER TABLE again.orders DROP extra"
    )
    inserts = [line for line in sql.splitlines() if line.startswith("INSERT")]
    shop.execute(*(line.replace('"public"."orders"', "again.orders") for line in inserts))
    assert shop.query("SELECT id, status, total::text FROM again.orders ORDER BY id") == [
        (2, "paid", "7.00"),
        (3, "new", "NaN"),
    ]
    left_out = show(capture, "orders", "-o", "sql")
    assert "1 change could not be written as SQL" in left_out.stderr
    assert "-- left out: snapshot on public.orders (xid unknown, seq " in left_out.stdout.decode()
    assert (
        "--history has rows that no table had at one time"
        in show(capture, "orders", "--history", "-o", "sql", status=2).stderr
    )


def test_moments_and_conditions(capture: Path) -> None:
    first, *_, last = (row["new"] for row in rows(show(capture, "orders", "--history").stdout.decode()))
    assert isinstance(first, dict)
    assert isinstance(last, dict)
    begin = rows(show(capture, "orders", "--at", first["_valid_from"].replace(" ", "T")).stdout.decode())
    assert [row["new"] for row in begin] == [
        {"id": 1, "status": "new", "total": 10.50, "note": None},
        {"id": 2, "status": "new", "total": 7.00, "note": BIG},
        {"id": 3, "status": "new", "total": None, "note": None},
    ]
    ran = show(capture, "orders", "--where", "total > 7", "--where", "status = new")
    assert [row["seq"] for row in rows(ran.stdout.decode())] == [2]
    ran = show(capture, "orders", "--where", "extra = 5", "--where", "nowhere = 1")
    assert "0 of 2 rows matched" in ran.stderr
    assert "no table had a column nowhere" in ran.stderr
    [masked] = rows(show(capture, "orders", "--redact", "total", "--where", "total = 7").stdout.decode())
    assert isinstance(masked["new"], dict)
    assert masked["new"]["total"] not in (7, "7.00")
    kept = capture.with_name("kept.sql")
    kept.write_text("kept")
    show(capture, "orders", "--redact", "total", "-o", "sql", "-f", str(kept), status=2)
    assert kept.read_text() == "kept"
    assert "--redact totl masked nothing" in show(capture, "orders", "--redact", "totl", status=1).stderr


def test_a_history_says_from_when_to_when_and_who(capture: Path) -> None:
    lives = [row["new"] for row in rows(show(capture, "orders", "--history", "--where", "id = 2").stdout.decode())]
    assert [one["status"] for one in lives if isinstance(one, dict)] == ["new", "paid", "sent"]
    new, paid, sent = lives
    assert isinstance(new, dict)
    assert isinstance(paid, dict)
    assert isinstance(sent, dict)
    assert new["_xid"] is None
    assert (new["_valid_to"], new["_valid_to_xid"]) == (paid["_valid_from"], paid["_xid"])
    assert (paid["_valid_to"], paid["_valid_to_xid"]) == (sent["_valid_from"], sent["_xid"])
    assert (sent["_valid_to"], sent["_valid_to_xid"]) == (None, None)
    assert "_xid is a column of --history" in show(capture, "orders", "--where", "_xid = 7").stderr
    assert "extra" not in paid


def test_types_that_changed(newest_database: Database, tmp_path: Path) -> None:
    capture = tmp_path / "capture"
    newest_database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, n numeric(10,2))",
        "CREATE TABLE u (id int PRIMARY KEY, v int)",
        "CREATE PUBLICATION p FOR TABLE t, u",
    )
    record = "record", newest_database.conninfo(), "-S", "s", "-P", "p", "-D", str(capture), "--until", "now"
    pgtail(*record, "--snapshot")
    newest_database.execute(
        "INSERT INTO t VALUES (1, 60.25)",
        "UPDATE t SET n = 30",
        "ALTER TABLE t ALTER n TYPE numeric(12,3)",
        "UPDATE t SET n = 1.125",
        "INSERT INTO u VALUES (1, 10), (2, 20)",
        "ALTER TABLE u ALTER v TYPE bigint USING v * 100",
        "INSERT INTO u VALUES (3, 3000)",
    )
    pgtail(*record)
    text = show(capture, "t", "--history", "-o", "json").stdout.decode()
    digits = [line.partition('"n":')[2].partition("}")[0] for line in text.splitlines()]
    assert digits == ["60.25", "30.000", "1.125"], "each as it was at its end"
    assert "2 rows of u not written since ALTER TABLE changed the type of a column" in show(capture, "u").stderr
    newest_database.execute("UPDATE u SET v = v")
    pgtail(*record)
    assert "ALTER TABLE" not in show(capture, "u").stderr + show(capture, "t").stderr


def test_without_a_snapshot_a_warning_says_what_is_missing(capture: Path) -> None:
    ran = show(capture, "late", status=1)
    assert [row["new"] for row in rows(ran.stdout.decode())] == [{"id": 1}, {"id": 2, "w": "b"}]
    assert "has no snapshot of late up to then: only rows that were written since the capture began" in ran.stderr


def test_a_masked_column_is_masked_under_its_later_name(capture: Path) -> None:
    for option in ((), ("--history",)):
        text = show(capture, "late", "--redact", "v", *option, status=1).stdout.decode()
        assert {'"a"', '"b"'}.isdisjoint(text.replace(",", " ").replace(":", " ").replace("}", " ").split())
        assert len(rows(text)) == 2


def test_errors_name_the_cure(capture: Path, tmp_path: Path) -> None:
    assert "has no row of a table order up to then; did you mean orders?" in show(capture, "order", status=2).stderr
    assert "give one of them" in show(capture, "orders", "--at", "0/1", "--before", "0/2", status=2).stderr
    assert ": ends at " in show(capture, "orders", "--at", "FFF/0", status=1).stderr
    assert "no later commit" in show(capture, "orders", "--at", "2100-01-01").stderr
    assert "holds no capture" in show(tmp_path, "orders", status=1).stderr
    position = lsn_text(parse_lsn(str(json.loads((capture / "capture.json").read_text())["position"])))
    assert rows(show(capture, "orders", "--at", position).stdout.decode())
