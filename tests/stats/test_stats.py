"""`pgtail stats` on captures of real servers: compared with their messages and with the lines of decode."""

from __future__ import annotations

import json
import random
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pgtail.terminal.layout import width_of
from tests.support.corpus import Capture, capture, captures, read
from tests.support.encode import UNCHANGED, begin, commit, delete, insert, lengths, relation, update
from tests.support.render import WAYS, rows_by
from tests.support.run import decode, here
from tests.support.tail import COMMAND
from tests.support.terminals import on_terminal
from tests.tools import make_man

ALL = captures()
WHOLE = [one for one in ALL if not any(message.in_stream for message in one.messages())]
OPS = ("insert", "update", "delete")
FULL: dict[str, Any] = {"identity": "f", "key": (0, 1)}


def stats(*arguments: str | Path, data: bytes | None = None, status: int = 0) -> Any:
    result = decode(*arguments, "-o", "json", input=data, name="stats")
    assert result.status == status, result.stderr
    [report] = result.objects
    return report


def arguments_of(one: Capture) -> list[str | Path]:
    return [one.forms["walsender.bin"], "--encoding", one.encoding]


@pytest.mark.parametrize("one", ALL, ids=str)
def test_the_counts_are_those_of_the_lines(one: Capture) -> None:
    given = arguments_of(one)
    lines = [json.loads(line) for line in decode(*given, "--transactions").lines]
    report = stats(*given)
    ops = Counter((line.get("schema"), line.get("table"), line["op"]) for line in lines)
    for table in report["tables"]:
        name = table.get("schema"), table.get("table")
        same_name = [other for other in report["tables"] if (other.get("schema"), other.get("table")) == name]
        for op in ("insert", "update", "delete", "truncate"):
            assert sum(other[f"{op}s"] for other in same_name) == ops[*name, op]
    rows = sum(count for (*_, op), count in ops.items() if op in ("insert", "update", "delete"))
    found = report["transactions"]
    assert found["rows"]["total"] == rows == sum(sum(table[f"{op}s"] for op in OPS) for table in report["tables"])
    assert found["bytes"]["total"] == sum(table["bytes"] for table in report["tables"])
    assert found["count"] + found["empty"] == sum(line["op"] in ("commit", "prepare") for line in lines)
    assert report["messages"]["count"] == ops[None, None, "message"]
    truncates = [line.get("commit_lsn", line.get("prepare_lsn")) for line in lines if line["op"] == "truncate"]
    assert [mark["lsn"] for mark in report["truncates"]] == truncates
    assert found["incomplete"] == 0
    if report["rate"] is not None:
        assert sum(report["rate"]["rows"]) == rows - sum(line["op"] in OPS and "origin" in line for line in lines)
    assert sum(table["share"] for table in report["tables"]) == pytest.approx(1 if rows else 0, abs=1e-4)


@pytest.mark.parametrize("one", WHOLE, ids=str)
def test_bytes_are_those_of_the_row_messages(one: Capture) -> None:
    sizes: Counter[int] = Counter()
    for each in one.messages():
        if each.data[:1] in b"IUD":
            sizes[struct.unpack_from(">I", each.data, 1)[0]] += len(each.data)
    report = stats(*arguments_of(one))
    assert sum(sizes.values()) == sum(table["bytes"] for table in report["tables"])
    found = sorted(table["bytes"] for table in report["tables"] if table["bytes"])
    if len(found) == len(sizes):  # a renamed table is reported under each of its names
        assert found == sorted(sizes.values())


BINARY_FORMS = ("walsender.bin", "recv.bin")
FILTERS: list[list[str]] = [[], ["-t", "*t*"], ["--op", "update,delete"], ["--exclude", "*", "--op", "insert"]]


@pytest.mark.parametrize("one", [one for one in ALL if one.scenario.version == "pg16"], ids=str)
def test_rows_that_are_counted_in_runs_are_counted_the_same(one: Capture) -> None:
    """Compiled and from events, in both framings, with filters that allow the fast path."""
    rest = arguments_of(one)[1:]
    for form in BINARY_FORMS:
        if form in one.forms:
            for filter_ in FILTERS if form == BINARY_FORMS[0] else FILTERS[:1]:
                reports = []
                for way in WAYS:
                    with rows_by(way):
                        reports.append(decode(one.forms[form], *rest, *filter_, name="stats"))
                assert reports[0] == reports[1], (form, filter_)


@pytest.mark.parametrize("seed", range(10))
def test_damaged_rows_are_counted_the_same(seed: int) -> None:
    chance = random.Random(seed)
    data = bytearray(read(chance.choice(ALL).forms["walsender.bin"])[:60_000])
    for _ in range(chance.randint(1, 30)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    reports = []
    for way in WAYS:
        with rows_by(way):
            result = decode("--input-format", "lengths", "--resync", "-o", "json", input=bytes(data), name="stats")
            reports.append((result.status, result.stdout))
    assert reports[0] == reports[1]


def test_streamed_transaction_counts_like_a_plain_one() -> None:
    whole, streamed = (stats(*arguments_of(capture("C_stream", name))) for name in ("p2_nostream", "p2_stream"))
    assert whole["tables"] == streamed["tables"]
    assert whole["transactions"]["rows"] == streamed["transactions"]["rows"]
    assert whole["transactions"]["bytes"] == streamed["transactions"]["bytes"]
    assert whole["hot_keys"] == streamed["hot_keys"]


def test_inputs_in_any_order_have_the_same_first_and_last_transaction(tmp_path: Path) -> None:
    paths = []
    for lsn in (1, 2, 3):
        commits = [(lsn << 24 | second << 8, (60 * lsn + second) * 1_000_000) for second in (1, 2)]
        whole = [[begin(lsn, at, time), insert("1", "a"), commit(at, at + 8, time)] for at, time in commits]
        paths.append(tmp_path / f"{lsn}.bin")
        paths[-1].write_bytes(lengths(relation(), *whole[0], *whole[1]))
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        arguments: list[str | Path] = ["--input-format", "lengths", *[paths[place] for place in order]]
        for way in WAYS:
            with rows_by(way):
                found = stats(*arguments)["transactions"]
                table, html = (
                    decode(*arguments, "-o", form, name="stats").stdout.decode() for form in ("table", "html")
                )
            assert found["first"] == {"lsn": "0/1000100", "ts": "2000-01-01T00:01:01.000000Z"}
            assert found["last"] == {"lsn": "0/3000200", "ts": "2000-01-01T00:03:02.000000Z"}
            assert "2000-01-01 00:01:01 to 2000-01-01 00:03:02 UTC, 2 min" in table
            assert "0/1000100 to 0/3000200" in table
            assert "2000-01-01 00:01:01 to 2000-01-01 00:03:02" in html
            assert "▲" not in html


def one_of(*changes: bytes, xid: int = 7) -> list[bytes]:
    return [begin(xid), *changes, commit()]


def test_updates_that_changed_nothing_are_counted_if_the_old_row_was_sent() -> None:
    dump = lengths(
        *[relation(**FULL), relation(200, "k")],
        *one_of(
            update(["1", "a"], ["1", "a"], "O"),
            update(["1", UNCHANGED], ["1", "a"], "O"),
            update(["1", "b"], ["1", "a"], "O"),
            update([None, "a"], ["1", "a"], "O"),
            update(["1", ""], ["1", None], "O"),
            update(["1", "a"], oid=200),
            update(["2", UNCHANGED], ["1", None], oid=200),
        ),
    )
    full, key = stats(data=dump)["tables"]
    assert (full["updates"], full["updates_compared"], full["updates_without_change"]) == (5, 5, 2)
    assert (full["key_updates"], full["updates_with_unsent_toast"], full["unsent_toast"]) == (0, 1, {"v": 1})
    assert (key["updates"], key["updates_compared"], key["updates_without_change"]) == (2, 0, 0)
    assert (key["key_updates"], key["updates_with_unsent_toast"], key["unsent_toast"]) == (1, 1, {"v": 1})


def test_hot_keys_are_those_of_updates_and_deletes() -> None:
    dump = lengths(
        relation(),
        *one_of(*[insert("5", "x") for _ in range(9)], update(["5", "a"]), update(["6", "a"], ["5", None])),
        *one_of(delete("5", None), delete("6", None), update(["7", "a"])),
    )
    found = stats(data=dump)["hot_keys"]
    assert found == {
        "counted": 5,
        "error": 0,
        "keys": [{"schema": "public", "table": "t", "key": {"id": 5}, "changes": 3}],
    }


def test_filters_decide_what_is_counted() -> None:
    one = capture("A_dml", "p1")
    everything, report = stats(*arguments_of(one)), stats(*arguments_of(one), "-t", "t_d*", "--op", "insert")
    [table] = report["tables"]
    assert (table["table"], table["updates"], table["deletes"], table["share"]) == ("t_default", 0, 0, 1)
    [before] = [other for other in everything["tables"] if other["table"] == "t_default"]
    assert table["inserts"] == before["inserts"] == report["transactions"]["rows"]["total"]
    assert report["transactions"]["count"] < everything["transactions"]["count"]


def test_schema_changes_say_what_differs() -> None:
    one = capture("A_ddl", "p1")
    report = stats(*arguments_of(one))
    found = [(mark["schema"], mark["table"], mark["differences"]) for mark in report["schema_changes"]]
    assert ("public", "d", ["column c added"]) in found
    assert ("s2", "d_renamed", ["renamed from public.d_renamed"]) in found
    assert all(differences for *_, differences in found)
    lines = [json.loads(line) for line in decode(*arguments_of(one), "--transactions").lines]
    commits = {(line["commit_lsn"], line["commit_ts"]) for line in lines if line["op"] == "commit"}
    assert {(mark["lsn"], mark["ts"]) for mark in report["schema_changes"]} <= commits


def test_counts_before_damage_are_reported() -> None:
    dump = lengths(relation(), *one_of(insert("1", "a")))
    report = stats(data=dump + b"\0\0\0\x05wrong", status=1)
    assert report["transactions"]["count"] == 1
    report = stats(data=dump + lengths(begin(8), insert("2", "b")))
    assert (report["transactions"]["count"], report["transactions"]["incomplete"]) == (1, 1)


def test_empty_dump_gives_an_empty_report() -> None:
    report = stats(data=b"")
    assert report["transactions"]["count"] == 0
    assert report["tables"] == []
    assert report["rate"] is None


def test_nothing_to_read_and_options_that_do_not_go_together() -> None:
    for arguments, words in (
        ([], "name FILEs, or a slot"),
        (["--slot", "s", "a", "b"], "give one DSN"),
        (["--slot", "s", "--input-format", "raw"], "--input-format is for dumps"),
    ):
        result = decode(*arguments, name="stats")
        assert (result.status, result.stdout) == (2, b"")
        assert words in result.stderr


# -- tables for people -------------------------------------------------------------------------------------------------


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    def show(*arguments: str | Path, data: bytes | None = None, width: int = 80) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        result = decode("-o", "table", *arguments, input=data, name="stats")
        assert result.status == 0, result.stderr
        return result.stdout.decode()

    return show


def test_a_pipe_has_the_width_of_the_terminal_where_it_probably_ends() -> None:
    arguments = map(str, arguments_of(capture("A_dml", "p1")))
    script = 'unset COLUMNS; stty cols 70; "$@" | cat'
    _, shown = on_terminal(["/bin/sh", "-c", script, "sh", *COMMAND[:-1], "stats", *arguments])
    assert "updates" in shown
    assert "error" not in shown
    assert 60 < max(map(width_of, shown.splitlines())) <= 70


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
@pytest.mark.parametrize("name", ["A_dml", "A_ddl", "C_stream", "A_names", "D_twophase"])
def test_no_line_is_wider_than_the_terminal(page: Callable[..., str], name: str, width: int) -> None:
    one = next(one for one in ALL if one.scenario.name == name)
    text = page(*arguments_of(one), width=width)
    assert len(text.splitlines()) > 10
    assert max(map(width_of, text.splitlines())) <= width
    assert "\x1b" not in text
    assert "\x1b[" in page(*arguments_of(one), "--color", "always", width=width)


def test_colours_are_settings(page: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGTAIL_COLOR", "always")
    monkeypatch.setenv("PGTAIL_COLORS", "insert=35")
    assert "\x1b[35minserts" in page(*arguments_of(capture("A_dml", "p1")))


def test_the_file_is_opened_first_and_replaced_last(tmp_path: Path) -> None:
    file = tmp_path / "report"
    file.write_text("the report of yesterday\n")
    good = [*arguments_of(capture("Z_small", "p1")), "-f", str(file)]
    failed = decode("-o", "json", str(tmp_path / "nosuch"), *good[-2:], name="stats")
    assert (failed.status, file.read_text()) == (1, "the report of yesterday\n")
    assert decode("-o", "json", *good, name="stats").status == 0
    assert file.read_text().startswith('{"transactions"')
    text = tmp_path / "text"
    text.write_text("no dump")
    assert decode(str(text), "-f", "/nosuch/report", name="stats").status == 4, "before anything is read"


def test_contents_of_the_report(page: Callable[..., str]) -> None:
    text = page(*arguments_of(capture("A_dml", "p1")))
    for words in (
        "● 62 transactions  692 rows  59.0 kB",
        r"public.t_default +317 +12 +292 +0 +25.9 kB +43.9 %",
        r"rows up to +1 +5 +300 +300",
        r"xid 829  0/1996908  22:06:14 +300 +18.5 kB",
        r"a column is 0.001 s, the highest 300 rows",
        r"public.t_toast +6 +1 +\? +4 \(big\)",
        r"public.t_full +2 +0 +0 of 2 +0",
        r"public.t_toast id=1 +3",
        "without tables of REPLICA IDENTITY FULL",
    ):
        assert re.search(words, text), text


def test_transactions_of_several_days_have_their_date_in_any_width(page: Callable[..., str]) -> None:
    day = 86_400_000_000
    row = insert("1", "x")
    data = lengths(relation(), begin(), row, commit(), begin(xid=8, time=day), row, commit(time=day))
    assert re.search(r"xid 7  0/100  2000-01-01 00:00:00", page(data=data))


def test_a_duration_is_shown_if_one_is_known(page: Callable[..., str]) -> None:
    forms = capture("A_dml", "p1").forms
    assert [page(data=forms[form].read_bytes()).count("took") for form in ("recv.bin", "walsender.bin")] == [0, 3]


def test_columns_without_room_are_left_out(page: Callable[..., str]) -> None:
    """An ellipsis says so, and stands where a name was cut."""
    text = page(*arguments_of(capture("A_dml", "p1")), width=40)
    for words in (
        "  2026-11-20 22:06:14.070078 to\n  2026-11-20 22:06:14.133193 UTC, 63 ms\n",
        "  table               inserts  updates …\n  public.t_default        317       12\n",
        "  public.t_toast_fu…        2        2\n",
        "  a transaction has      half    95 % …\n  rows up to                1       5\n",
        "  xid 829  0/1996908  …   300  18.5 kB\n",
        "  updates of           all  of the key …\n",
        "  public.t_toast id=1                  3\n",
    ):
        assert words in text, text
    assert "…" not in page(*arguments_of(capture("A_dml", "p1")), width=80)


def test_largest_of_many_tables_are_shown(page: Callable[..., str]) -> None:
    tables = [relation(100 + number, f"t{number}") for number in range(100)]
    rows = [insert("1", "x" * number, oid=100 + number) for number in range(100)]
    text = page(data=lengths(*tables, *one_of(*rows)))
    assert "public.t99 " in text
    assert "public.t69 " not in text
    assert "and 70 tables more: 70 rows, " in text


def test_a_database_in_place_of_a_file_gets_its_options() -> None:
    ran = here("stats", "shop")
    words = "No such file or directory; of a database, pgtail stats needs --slot NAME, --for TIME or --watch\n"
    assert (ran.status, ran.stderr) == (1, f"pgtail: error: shop: {words}")


def test_every_key_of_the_report_is_documented() -> None:
    def keys(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            for key, percentile in value.items():
                if key not in ("unsent_toast", "key", "origins"):
                    yield from keys(percentile)
                yield key
        elif isinstance(value, list):
            for one in value:
                yield from keys(one)

    page = re.sub(r"\\f[BIP]", "", (make_man.MAN / "pgtail-stats.1").read_text())
    reports = [stats(*arguments_of(capture(name, "p3_2pc"))) for name in ("D_twophase",)]
    reports += [stats(*arguments_of(capture(name, "p1"))) for name in ("A_dml", "A_ddl", "Z_small")]
    found = set(keys(reports))
    assert {"gid", "longest", "differences", "changes"} <= found
    assert {key for key in found if not re.search(rf"\b{key}\b", page)} == set()


def test_masking_changes_no_number() -> None:
    """Unmasked values are counted: masked ones are all equal."""
    table = relation(identity="f", key=(0, 1), oid=200, name="f")
    updates = [update((str(number), "x" * 50)) for number in (1, 2, 2, 2, 1, 3)]
    updates += [update(("1", "b"), ("1", before), "O", oid=200) for before in "ab"]
    data = lengths(relation(), table, begin(), *updates, commit())
    for way in WAYS:
        with rows_by(way):
            plain, masked = stats(data=data), stats("--redact", "id,v", data=data)
        assert [key["key"] for key in plain["hot_keys"]["keys"]] == [{"id": 2}, {"id": 1}]
        for key in plain["hot_keys"]["keys"]:
            key["key"] = {"id": "(redacted)"}
        assert masked == plain
        assert [one["updates_without_change"] for one in masked["tables"]] == [0, 1]


def test_key_that_was_sent_unchanged_is_no_key_change() -> None:
    """The server sends a TOASTed key even if it did not change."""
    updates = [update((UNCHANGED, "b"), ("1", None)), update(("1", "b"), ("1", None)), update(("2", "b"), ("1", None))]
    for way in WAYS:
        with rows_by(way):
            [table] = stats(data=lengths(relation(), begin(), *updates, commit()))["tables"]
        assert (table["updates"], table["key_updates"]) == (3, 1)


@pytest.mark.parametrize(
    ("rows", "top", "cut"),
    [
        ([10, 1000, 20, 10], " ▲█ ", "1 000 rows at 2000-01-01 00:00:01.000"),
        (
            [10, 900, 20, 10, 10, 10, 1000],
            " ▲█   ▲",
            "900 rows at 2000-01-01 00:00:01.000, 1 000 rows at 2000-01-01 00:00:06.000",
        ),
        ([10, 50, 20, 10], " █  ", ""),  # the others can be seen
        ([10, 1000, 1000], " ██", ""),  # no exception
    ],
)
def test_bars_that_would_flatten_the_others_are_cut_off(
    page: Callable[..., str], rows: list[int], top: str, cut: str
) -> None:
    messages = [relation()]
    for second, count in enumerate(rows):
        at = second * 1_000_000
        messages += [begin(second + 9, second + 1, at), *[insert("1", "a")] * count, commit(second + 1, second + 2, at)]
    lines = page(data=lengths(*messages)).splitlines()
    chart = next(number for number, line in enumerate(lines) if "rows by time of commit" in line)
    highest, lowest = lines[chart + 1], lines[chart + 4]
    drawn = "".join(cell for cell, below in zip(highest.ljust(len(lowest)), lowest, strict=True) if below != " ")
    assert drawn == top
    said = " ".join("\n".join(lines).split())
    assert (f"▲ cut off, so that the others show: {cut}" in said) is bool(cut), said
