"""`pgtail doctor` as users run it: its exit status, its JSON, and the layout of its report."""

from __future__ import annotations

import re

import pytest
from rich.text import Text

from tests.support.run_process import lines, pgtail
from tests.support.servers import Database


@pytest.fixture
def shop(newest_database: Database) -> Database:
    newest_database.execute("CREATE TABLE orders (id int PRIMARY KEY, v text)", "CREATE PUBLICATION p FOR TABLE orders")
    return newest_database


def test_the_exit_status_is_the_severity(shop: Database) -> None:
    pgtail("doctor", shop.conninfo())
    shop.execute("CREATE PUBLICATION empty")
    pgtail("doctor", shop.conninfo(), status=1)
    shop.execute("CREATE TABLE bare (id int)", "ALTER PUBLICATION p ADD TABLE bare")
    out, _ = pgtail("doctor", shop.conninfo(), "-o", "json", status=2)
    assert {line["severity"] for line in lines(out)} == {"ok", "warning", "problem"}
    _, words = pgtail("doctor", "host=127.0.0.1 port=1 dbname=x", status=75)
    assert "Check that the server runs" in words


def test_the_json_has_a_line_for_each_finding(shop: Database) -> None:
    shop.execute("DROP PUBLICATION p")
    out, _ = pgtail("doctor", shop.conninfo(), "-o", "json", status=2)
    found = {line["check"]: line for line in lines(out)}
    assert found["publications"] == {
        "family": "publications",
        "check": "publications",
        "severity": "problem",
        "text": f"database {shop.name} has no publication: pgoutput sends nothing without one",
        "subjects": [],
        "cure": ["-- With the tables you want:", "CREATE PUBLICATION some_name FOR TABLE public.orders;"],
    }
    assert found["wal_level"]["severity"] == "ok"


@pytest.mark.parametrize("width", [80, 160])
def test_the_table_stays_within_the_width(shop: Database, width: int) -> None:
    shop.execute(*[f"CREATE TABLE bare_{number:02} (id int)" for number in range(12)])
    shop.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    out, _ = pgtail("doctor", shop.conninfo(), "-o", "table", env={"COLUMNS": str(width)}, status=2)
    assert max(map(len, out.splitlines())) <= width
    assert "\x1b" not in out
    words = " ".join(out.split())
    assert "● problem UPDATE and DELETE fail: the tables are published, but have no usable replica identity" in words
    assert "public.bare_04 … and 7 more" in words
    severities = re.findall("^● ([a-z]+)", out, re.MULTILINE)
    assert severities == sorted(severities, key=["ok", "warning", "problem"].index), "the worst come last"
    assert set(severities) == {"ok", "problem"}
    assert "(-o json has them all)" in words
    assert out.splitlines()[-1].endswith("1 problem")
    short, _ = pgtail("doctor", shop.conninfo(), "-q", env={"COLUMNS": str(width)}, status=2)
    assert re.findall("^● ([a-z]+)", short, re.MULTILINE) == ["problem"]
    assert short.splitlines()[-1] == out.splitlines()[-1]
    lines_, _ = pgtail("doctor", shop.conninfo(), "-q", "-o", "json", status=2)
    assert [line["severity"] for line in lines(lines_)] == ["problem"]
    colored, _ = pgtail("doctor", shop.conninfo(), "-o", "table", "--color", "always", status=2)
    assert Text.from_ansi(colored).plain.split() == out.split()
    assert "\x1b[38;5;231;48;5;124m● problem\x1b[0m" in colored
    variables = {"PGTAIL_COLOR": "always", "PGTAIL_COLORS": "bad=35"}
    colored, _ = pgtail("doctor", shop.conninfo(), "-o", "table", env=variables, status=2)
    assert "\x1b[35m● problem" in colored
    _, words = pgtail("doctor", shop.conninfo(), "--colors", "nothing", status=2)
    assert "expected THING=STYLE" in words


def test_the_cure_of_several_slots_is_there_once(shop: Database) -> None:
    for name in ("a", "b", "c"):
        shop.query(f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")
    out, _ = pgtail("doctor", shop.conninfo(), "-o", "table", status=1)
    shown = [re.sub("^ *-- ", "", line) for line in out.splitlines()]
    assert [line.split()[3] for line in shown if line.startswith("● warning  slot ")] == ["a", "b", "c"]
    assert shown.count("Let its consumer read it.") == 1
    assert [line.split()[3] for line in shown if line.startswith("pgtail slot drop ")] == ["a", "b", "c"]


def test_no_heading_comes_twice(shop: Database) -> None:
    """One family has findings of each severity."""
    shop.execute("CREATE UNLOGGED TABLE u (id int PRIMARY KEY)", "CREATE TABLE bare (id int)")
    shop.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    found, _ = pgtail("doctor", shop.conninfo(), "-o", "json", status=2)
    families = [(line["severity"], line["family"]) for line in lines(found)]
    assert {("warning", "tables"), ("problem", "tables")} <= {*families}
    out, _ = pgtail("doctor", shop.conninfo(), "-o", "table", status=2)
    headings = re.findall("^([a-z: ]+)$", out, re.MULTILINE)
    assert {"tables", "tables: warnings", "tables: problems"} <= {*headings}
    assert len({*headings}) == len(headings)


def test_a_cure_is_not_broken_inside_of_quotes(shop: Database) -> None:
    shop.execute('CREATE TABLE "Un ique" (id int NOT NULL UNIQUE)', 'ALTER PUBLICATION p ADD TABLE "Un ique"')
    out, _ = pgtail("doctor", shop.conninfo(), "-o", "table", env={"COLUMNS": "80"}, status=2)
    statement = 'ALTER TABLE public."Un ique" REPLICA IDENTITY USING INDEX "Un ique_id_key";'
    assert statement not in out, "it must be too long for a line"
    pasted = "\n".join(out.partition("ALTER TABLE")[1:]).partition(";")[0]
    shop.execute(pasted)
