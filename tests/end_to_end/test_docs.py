"""Every command, option, format, exit status and variable is documented, and everything documented exists."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from pgtail import errors, inputs, outputs
from pgtail.cli.command import REMOVED
from tests.tools import make_man

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTEXTS = {context.command_path: context for context in make_man.commands()}
PAGES = sorted(path.name for path in make_man.MAN.glob("*.[1-8]"))
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z]")

OTHERS = {"--archives", "--csv", "--py-files", "--start"}
"""Options of psql, pg_recvlogical and spark-submit in the examples."""


@cache
def page(name: str) -> str:
    """A page's source without roff's escapes and fonts: the words that a reader sees."""
    source = (make_man.MAN / name).read_text(encoding="utf-8")
    source = re.sub(r"\\f[BIP]", "", source)
    for escape, shown in (
        (r"\(aq", "'"), (r"\(dq", '"'), (r"\(ga", "`"), (r"\(ha", "^"), (r"\(ti", "~"), (r"\-", "-"), (r"\&", ""),
    ):  # fmt: skip
        source = source.replace(escape, shown)
    return source.replace(r"\e", "\\")


def section(name: str, title: str) -> str:
    """The text of one section of a page."""
    found = re.search(rf"^\.SH {title}\n(.*?)(?=^\.SH |\Z)", page(name), re.DOTALL | re.MULTILINE)
    assert found is not None, f"{name} has no section {title}"
    return found[1]


def terms(text: str) -> set[str]:
    """The words that a section explains one by one: on the line after .TP, and in the first column of a table."""
    lines = re.findall(r"^(?:\.TP|T\{)\n(.*)", text, re.MULTILINE)
    return {word for line in lines for word in re.split(r"[,;]? ", line)}


def all_options() -> set[str]:
    """The long names of all options of all commands, also those that only work."""
    return {
        name
        for context in CONTEXTS.values()
        for option in make_man.options(context)
        for name in [*option.opts, *option.secondary_opts, *getattr(option, "aliases", ())]
        if name.startswith("--")
    }


def choices(path: str, name: str) -> list[str]:
    """The choices of an option."""
    for option in make_man.options(CONTEXTS[path]):
        if name in option.opts and isinstance(option.type, click.Choice):
            return list(option.type.choices)
    raise AssertionError(f"{path} has no {name} with choices")


OUTPUTS = choices("pgtail decode", "--output")
INPUTS = choices("pgtail decode", "--input-format")


def test_command_line_offers_every_format() -> None:
    assert list(outputs.OUTPUTS) == OUTPUTS == choices("pgtail stream", "--output")
    assert set(inputs.INPUTS) == set(INPUTS)
    assert choices("pgtail inspect", "--input-format") == INPUTS


def test_committed_man_pages_are_current() -> None:
    made = make_man.pages()
    assert sorted(made) == PAGES
    for name, text in made.items():
        assert (make_man.MAN / name).read_text(encoding="utf-8") == text, f"man/{name} is stale: make man"


@pytest.mark.parametrize("path", CONTEXTS)
def test_a_command_has_help_and_a_page_with_every_option(path: str) -> None:
    context = CONTEXTS[path]
    assert context.command.help
    name = make_man.page_name(context)
    described = terms(section(name, "OPTIONS"))
    for option in make_man.options(context):
        assert option.help, f"{path} {option.opts} has no help"
        assert {*option.opts, *option.secondary_opts} <= described, f"{option.opts} is not in man/{name}"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_at_most_2500_words(name: str) -> None:
    lines = [line for line in page(name).splitlines() if not line.startswith(".") or line.startswith(".S")]
    assert len(" ".join(lines).split()) <= 2500


@pytest.mark.parametrize("path", CONTEXTS)
def test_the_readme_mentions_every_command_and_groups_list_theirs(path: str) -> None:
    context = CONTEXTS[path]
    if context.parent is not None and context.parent.parent is not None:
        group = make_man.page_name(context.parent)
        assert f"{make_man.page_name(context).removesuffix('.1')}(1)" in terms(section(group, "COMMANDS"))
    else:
        assert re.search(rf"\b{path}\b", README)


_GONE = {option.rpartition(" ")[2] for option in REMOVED}


@pytest.mark.parametrize("name", PAGES)
def test_every_option_that_is_mentioned_exists(name: str) -> None:
    gone = _GONE if name == "pgtail-changes.7" else set()
    assert set(OPTION.findall(page(name))) <= all_options() | OTHERS | gone


def test_changes_name_every_option_that_was_removed() -> None:
    assert set(OPTION.findall(section("pgtail-changes.7", "DESCRIPTION"))) >= _GONE


def test_every_option_that_the_readme_mentions_exists() -> None:
    assert set(OPTION.findall(README)) <= all_options() | OTHERS


@pytest.mark.parametrize("format_", OUTPUTS)
def test_output_formats_are_documented(format_: str) -> None:
    assert format_ in terms(section("pgtail.1", "OUTPUT"))
    assert f"`{format_}`" in README


@pytest.mark.parametrize("format_", INPUTS)
def test_input_formats_are_documented(format_: str) -> None:
    assert format_ in terms(section("pgtail-input.5", "INPUT FORMATS"))


def exit_statuses() -> set[int]:
    """Success, and the statuses of all errors."""
    classes = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.PgtailError)]
    return {0, errors.TRY_AGAIN, *(one.exit_status for one in classes)}


@pytest.mark.parametrize("status", sorted(exit_statuses()))
def test_exit_statuses_are_documented(status: int) -> None:
    assert str(status) in terms(section("pgtail.1", "EXIT STATUS"))


def variables() -> Iterator[str]:
    """The environment variables that the package reads."""
    reads = re.compile(r"\b(environ|getenv)\b")
    sources = [file.read_text(encoding="utf-8") for file in (ROOT / "pgtail").rglob("*.py")]
    for source in filter(reads.search, sources):
        for node in ast.walk(ast.parse(source)):
            match node:
                case ast.Call(func=asked, args=[ast.Constant(value=str(name)), *_]):
                    pass
                case ast.Subscript(value=asked, slice=ast.Constant(value=str(name))):
                    pass
                case _:
                    continue
            if reads.search(ast.unparse(asked)):
                yield name


@pytest.mark.parametrize("name", sorted({*variables(), "PGHOST", "PGPORT", "PGUSER", "PGDATABASE", "PGPASSWORD"}))
def test_environment_variables_are_documented(name: str) -> None:
    assert name in terms(section("pgtail.1", "ENVIRONMENT"))


def test_every_key_of_the_json_is_documented() -> None:
    explained = {word for name in ("pgtail-json.5", "pgtail-input.5") for word in re.findall(r"[a-z_0-9]+", page(name))}
    assert keys_of_the_json() <= explained


def keys_of_the_json() -> set[str]:
    """The keys that the two JSON outputs write: quoted before a colon, or first in a pair."""
    found = set()
    for name in ("ndjson", "ndjson_tx"):
        source = (ROOT / "pgtail" / "outputs" / f"{name}.py").read_text(encoding="utf-8")
        found |= set(re.findall(r'"([a-z_0-9]+)\\?":', source)) | set(re.findall(r'\("([a-z_0-9]+)", ', source))
    assert {"op", "seq", "changes", "incomplete", "content_base64"} <= found, "the source is written differently now"
    return found


# -- examples ----------------------------------------------------------------------------------------------------------

EXAMPLE = re.compile(r"<!-- (pgtail [^\n]*) -->\n```json\n(.*?)\n```", re.DOTALL)
EXAMPLES = [
    (file.name, command, shown)
    for file in [*sorted(make_man.PARTS.glob("*.md")), ROOT / "README.md"]
    for command, shown in EXAMPLE.findall(file.read_text(encoding="utf-8"))
]


def test_every_json_example_names_its_command() -> None:
    for file in [*make_man.PARTS.glob("*.md"), ROOT / "README.md"]:
        text = file.read_text(encoding="utf-8")
        assert text.count("```json\n") == len(EXAMPLE.findall(text)), f"{file.name}: an example without a command"


@pytest.mark.parametrize(("file", "command", "shown"), EXAMPLES)
def test_json_examples_are_what_pgtail_prints(file: str, command: str, shown: str) -> None:
    _, *arguments = shlex.split(command)
    ran = subprocess.run(
        [sys.executable, "-c", "from pgtail.cli import main; main()", *arguments],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    printed = ran.stdout.decode().splitlines()
    for line in re.sub(r"\n +", "", shown).split("\n"):
        assert line in printed, f"{file}: {line}"


def invocations() -> Iterator[str]:
    """Every example line of help texts and man pages that starts with pgtail, without pipes and comments."""
    for name in PAGES:
        for block in re.findall(r"^\.EX\n(.*?)^\.EE", page(name), re.DOTALL | re.MULTILINE):
            for line in re.sub(r"\\\n *", "", block).splitlines():
                found = re.match(r""" *(pgtail (?:'[^']*'|"[^"]*"|[^'"])*?)(?:  .*| (?:[|#]|2?>).*)?$""", line)
                if found is not None:
                    yield found[1]


@pytest.mark.parametrize("line", sorted(set(invocations())))
def test_examples_are_command_lines_that_pgtail_takes(line: str) -> None:
    _, name, *arguments = shlex.split(line)
    CONTEXTS[f"pgtail {name}"].command.make_context(name, arguments)


# -- rendering ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAGES)
def test_a_page_renders_without_warnings(name: str) -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    command = ["groff", "-t", "-man", "-Tutf8", "-ww", "-k", "-rLL=80n", str(make_man.MAN / name)]
    ran = subprocess.run(command, capture_output=True, check=True, text=True)
    assert ran.stderr == ""
    wide = [line for line in re.sub(r"\x1b\[[0-9;]*m|.\x08", "", ran.stdout).splitlines() if len(line) > 80]
    assert wide == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_passes_mandoc(name: str) -> None:
    if shutil.which("mandoc") is None:
        pytest.skip("mandoc is not installed")
    ran = subprocess.run(
        ["mandoc", "-Tlint", "-Wwarning", str(make_man.MAN / name)], capture_output=True, check=False, text=True
    )
    found = [line for line in ran.stdout.splitlines() if "missing date" not in line]
    assert found == []
