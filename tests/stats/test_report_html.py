"""The page of `pgtail stats -o html`: its figures are those of -o json, and it loads and runs nothing."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from pgtail.humanize import size_text
from pgtail.stats.charts import NBSP, Axis
from pgtail.terminal.escape import hides
from tests.support.corpus import Capture, capture, captures
from tests.support.encode import begin, commit, insert, lengths, relation, truncate, update
from tests.support.run import Result, decode, here
from tests.support.tail import COMMAND
from tests.support.terminals import on_terminal

ALL = [one for one in captures() if one.scenario.version in ("pg16", "pg18")]
ELEMENTS = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "section", "dl", "dt", "dd", "table", "tr"),
    *("th", "td", "div", "figure", "figcaption", "ul", "li", "i", "span", "svg", "path", "rect"),
}
ATTRIBUTES = {
    *("lang", "charset", "http-equiv", "content", "name", "class", "style", "title", "viewBox", "preserveAspectRatio"),
    *("role", "d", "x", "width", "height"),
}
SECOND = 1_000_000


class Page:
    """A page that was parsed as XML, which is stricter than HTML."""

    def __init__(self, text: str) -> None:
        assert text.startswith("<!DOCTYPE html>\n")
        self.text = text
        self.root = ElementTree.fromstring(text.partition("\n")[2])
        self.sections = {_words(one[0]): one for one in self.root.iter("section")}

    def rows(self, title: str, table: int = 0) -> list[list[str]]:
        """The cells of a table in a section, without its head."""
        if title not in self.sections:
            return []
        return [[_words(cell) for cell in row.iter("td")] for row in [*self.sections[title].iter("table")][table]][1:]

    def steps(self, title: str) -> Counter[str]:
        """The sums of the amounts in the titles of the steps of a chart, by name; `title` is how the chart's ends."""
        [figure] = [figure for figure in self.root.iter("figure") if _words(figure[0]).endswith(title)]
        sums = Counter[str]()
        for rect in figure.iter("rect"):
            moment, _, amounts = "".join(rect[0].itertext()).partition(": ")
            assert re.fullmatch(r"\d{4}-\d\d-\d\d [\d:.]+", moment)
            for name, amount in re.findall(f"(.+?) (\\d[\\d{NBSP}]*){NBSP}rows?(?:, |$)", amounts):
                sums[name] += number(amount)
        return sums

    @property
    def covers(self) -> list[tuple[str, str]]:
        """The list of what it covers."""
        [found] = self.root.iter("dl")
        return [(_words(term), _words(words)) for term, words in zip(found[::2], found[1::2], strict=True)]


def _words(element: ElementTree.Element) -> str:
    return "".join(element.itertext()).replace(NBSP, " ")


def ran(*arguments: str | Path, data: bytes | None = None) -> Result:
    return decode(*arguments, "-o", "html", input=data, name="stats")


def page(*arguments: str | Path, data: bytes | None = None, status: int = 0) -> Page:
    result = ran(*arguments, data=data)
    assert result.status == status, result.stderr
    return Page(result.stdout.decode())


def report_of(*arguments: str | Path, data: bytes | None = None) -> Any:
    [report] = decode(*arguments, input=data, name="stats").objects
    return report


def given(one: Capture) -> list[str | Path]:
    return [one.forms["walsender.bin"], "--encoding", one.encoding, "--utc"]


def number(text: str) -> int:
    return int(re.sub(f"[ {NBSP}]", "", text))


@pytest.mark.parametrize("one", ALL, ids=str)
def test_the_figures_are_those_of_the_json(one: Capture) -> None:
    shown, report = page(*given(one)), report_of(*given(one))
    found = report["transactions"]
    tables = shown.rows("Tables")
    assert len(tables) == len(report["tables"])
    for cells, table in zip(tables, report["tables"], strict=True):
        assert [number(cell) for cell in cells[1:4]] == [table["inserts"], table["updates"], table["deletes"]]
        assert cells[-2] == size_text(table["bytes"])
    if found["count"]:
        assert shown.rows("Sizes of transactions")[0][1:] == [
            f"{found['rows'][part]:,}".replace(",", " ") for part in ("p50", "p95", "p99", "max")
        ]
        for place, key in enumerate(("rows", "bytes"), 1):
            counts = [number(row[1]) for row in shown.rows("Sizes of transactions", place)]
            assert sum(counts) == found["count"] == sum(each["count"] for each in found[key]["classes"])
    for title, key in (("Largest transactions", "most_bytes"), ("Longest transactions", "longest")):
        rows = shown.rows(title)
        assert [row[0].split()[1] for row in rows] == [str(size["xid"]) for size in found[key]]
        assert [row[1] for row in rows] == [size["lsn"] for size in found[key]]
    if report["rate"] is not None:
        rate = report["rate"]
        operations = {name: sum(rate[f"{name}s"]) for name in ("insert", "update", "delete")}
        assert shown.steps("by operation") == Counter(operations)
        by_table = shown.steps("by table")
        assert by_table.total() == sum(rate["rows"])
        assert by_table["other tables"] == sum(rate["rows"]) - sum(
            sum(table[op]) for table in rate["tables"] for op in ("inserts", "updates", "deletes")
        )
    marks = sorted([*report["schema_changes"], *report["truncates"]], key=lambda mark: mark["ts"] or "")
    rows = shown.rows("Schema changes and truncates")
    assert len(rows) == len(marks)
    assert all(mark["lsn"] in row for mark, row in zip(marks, rows, strict=True))


@pytest.mark.parametrize("one", ALL, ids=str)
def test_nothing_is_loaded_or_run(one: Capture) -> None:
    check_harmless(page(*given(one)))


def check_harmless(shown: Page) -> None:
    [policy] = [meta.get("content") for meta in shown.root.iter("meta") if meta.get("http-equiv")]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    assert {element.tag for element in shown.root.iter()} <= ELEMENTS
    assert {name for element in shown.root.iter() for name in element.attrib} <= ATTRIBUTES
    [style] = shown.root.iter("style")
    for text in (style.text or "", *[element.get("style", "") for element in shown.root.iter()]):
        assert not re.search(r"url|@import|expression|\\", text)
    assert not hides(shown.text.replace("\n", ""))


NAMES = (
    *("<script>alert(1)</script>", "</title></svg><img src=x onerror=alert(1)>", "]]>", "&amp;", "\u202eevil"),
    *(
        "new\nline\ttab\x07\x01",
        "\ufffe\uffff\ufdd0",
        "x" * 63,
        "y" * 5000,
        "",
        "' onload='alert(1)",
        "\U0001f469\u200d",
    ),
)


def test_hostile_names_are_text() -> None:
    messages = [relation(100 + number, name, schema="<b>") for number, name in enumerate(NAMES)]
    for number in range(len(NAMES)):
        row = [insert("1", "v", oid=100 + number), update(("<i>&", "\u202ez"), oid=100 + number)]
        messages += [begin(7 + number, time=number * SECOND), *row, row[1], commit(time=number * SECOND)]
    messages += [begin(99), truncate(*range(100, 100 + len(NAMES))), commit(time=0)]
    shown = page("--hot-keys", data=lengths(*messages))
    check_harmless(shown)
    names = [cells[0] for cells in shown.rows("Tables")]
    assert '"<b>"."<script>alert(1)</script>"' in names
    assert r'"<b>"."new\nline\ttab\x07\x01"' in names
    assert max(map(len, names)) <= 135
    assert [cells[1] for cells in shown.rows("Rows updated or deleted most often")] == ["id=<i>&"] * len(NAMES)


def test_keys_are_shown_only_if_asked() -> None:
    data = lengths(relation(), begin(), *[update(("secret-7", "x"))] * 3, commit())
    hidden, shown = page(data=data), page("--hot-keys", data=data)
    assert "secret" not in hidden.text
    assert "A row of public.t, 3 times." in hidden.text
    assert shown.rows("Rows updated or deleted most often") == [["public.t", "id=secret-7", "3"]]
    assert "secret" not in page("--hot-keys", "--redact", "id", data=data).text


@pytest.mark.parametrize(
    ("oid", "key"), [(1700, "12345678901234567890.12345678901234567890"), (1700, "1" * 5000), (3802, "[" * 99_999)]
)
def test_any_key_is_shown(oid: int, key: str) -> None:
    data = lengths(relation(columns=(("id", oid),)), begin(), *[update((key,))] * 2, commit())
    [[_, shown, _]] = page("--hot-keys", data=data).rows("Rows updated or deleted most often")
    assert shown == f"id={key if len(key) < 200 else key[:199] + '…'}"
    assert "A row of public.t, 2 times." in page(data=data).text


def test_a_page_of_many_tables_and_steps_is_small() -> None:
    names = [f"{number:03}{'n' * 60}" for number in range(200)]
    messages = [relation(100 + number, name, schema="s" * 63) for number, name in enumerate(names)]
    for number in range(2000):
        time = number * 7 * SECOND
        rows = [insert("1", "v" * (number % 50), oid=100 + (number * place) % 200) for place in range(1, 30)]
        messages += [begin(number + 7, number + 9, time), *rows, commit(number + 9, number + 10, time)]
    result = ran(data=lengths(*messages))
    assert len(result.stdout) < 300_000
    assert result.stdout.count(b'<rect class="step"') == 3 * len(report_of(data=lengths(*messages))["rate"]["rows"])


def test_an_empty_input_gives_a_page() -> None:
    shown = page(data=b"")
    assert "No changes." in shown.text
    assert shown.sections == {}


def test_damage_is_on_the_page(tmp_path: Path) -> None:
    data = lengths(relation(), begin(), insert("1", "a"), commit())
    [warning] = [words for term, words in page(data=data + b"\0\0\0\x05wrong", status=1).covers if term == "Warning"]
    assert warning.startswith("not read to the end: ")
    skipped = page("--resync", data=data + b"\0\0\0\x05wrong" + data, status=1)
    assert [term for term, _ in skipped.covers if term == "Warning"]
    assert all(words.endswith("/input") for term, words in skipped.covers if term == "Source")
    file = tmp_path / "page.html.gz"
    assert ran("-f", file, data=data).status == 0
    [table] = Page(gzip.decompress(file.read_bytes()).decode()).rows("Tables")
    assert table == ["public.t", "1", "0", "0", f"{len(insert('1', 'a'))} bytes", "100.0%"]


def test_prepared_and_streamed_transactions() -> None:
    one = capture("D_twophase", "p3_2pc")
    shown, found = page(*given(one)), report_of(*given(one))["transactions"]
    kinds = Counter(message.data[:1] for message in one.messages())
    prepared = found["prepared"]
    assert prepared["count"] == kinds[b"P"] + kinds[b"p"] > 0
    assert (prepared["committed"], prepared["rolled_back"]) == (kinds[b"K"], kinds[b"r"])
    assert prepared["without_outcome"] == prepared["count"] - len(prepared["longest"])
    rows = shown.rows("Prepared transactions")
    assert [row[2] for row in rows] == [
        *[each["outcome"].replace("_", " ") for each in prepared["longest"]],
        *["none"] * prepared["without_outcome"],
    ]
    waits = [each["seconds"] for each in prepared["longest"]]
    assert waits == sorted(waits, reverse=True)
    one = capture("C_stream", "p2_stream")
    found = report_of(*given(one))["transactions"]
    streamed = Counter(message.data[:1] for message in one.messages())[b"c"]
    assert 0 < found["streamed"]["count"] <= streamed
    assert [term for term, words in page(*given(one)).covers if "streamed before their commit" in words]


def test_the_largest_transactions_have_their_tables() -> None:
    for one in ALL:
        found = report_of(*given(one))["transactions"]
        for size in (*found["most_bytes"], *found["most_rows"], *found["longest"]):
            if not size["more_tables"]:
                assert sum(table["rows"] for table in size["tables"]) == size["rows"]
                assert sum(table["bytes"] for table in size["tables"]) == size["bytes"]


def test_a_terminal_gets_no_page() -> None:
    path = str(capture("Z_small", "p1").forms["recv.bin"])
    status, shown = on_terminal([*COMMAND[:-1], "stats", "-o", "html", path])
    assert (status, "such as -f report.html" in " ".join(shown.split())) == (2, True)
    for arguments, words in (
        (["--watch", "-o", "html"], "--watch shows samples, which -o html does not"),
        (["--hot-keys", path], "--hot-keys belongs to -o html, not to table"),
    ):
        result = here("stats", *arguments)
        assert (result.status, words in result.stderr) == (2, True)


@pytest.mark.parametrize("width", [1000, SECOND, 30 * SECOND, 3600 * SECOND, 86_400 * SECOND, 10**15])
@pytest.mark.parametrize("steps", [1, 7, 120])
def test_the_time_axis_has_a_few_labels_inside_of_it(width: int, steps: int) -> None:
    axis = Axis(width * 12_345, width, steps)
    ticks = axis.ticks()
    assert len(ticks) <= 7
    assert all(axis.start <= time < axis.stop for time, _ in ticks)
    assert steps == 1 or len({label for _, label in ticks}) == len(ticks) >= 2
