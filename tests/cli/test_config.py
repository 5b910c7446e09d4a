"""The config file and PGTAIL_* variables: their values, precedence and errors, and `pgtail config`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from pgtail.changes.redaction import MASK
from pgtail.cli import COMMANDS, main, settings
from pgtail.cli.settings import SETTINGS, Configured, ConfiguredArgument, key_of, unset, variable
from pgtail.outputs import OUTPUTS
from tests.support.corpus import capture
from tests.support.encode import begin, commit, insert, recvlogical, relation
from tests.support.run import Result, command, decode, here
from tests.support.servers import Database

DUMP = recvlogical(
    relation(), relation(oid=200, name="other"), begin(), insert("1", "ada"), insert("2", "bob", oid=200)
)
DUMP += recvlogical(commit())
RECV = capture("Z_small", "p1").forms["recv.bin"]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty config file, at the path where pgtail looks for it."""
    monkeypatch.delenv("PGTAIL_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = tmp_path / "pgtail" / "config.toml"
    path.parent.mkdir()
    path.touch()
    return path


def config(*arguments: str, **variables: str) -> Result:
    """`pgtail config`, run in this process."""
    result = here("config", *arguments, **variables)
    assert result.status == 0, result.stderr
    return result


def values(*arguments: str) -> list[dict[str, Any]]:
    return [line["new"] for line in decode(*arguments, input=DUMP).objects]


# -- precedence --------------------------------------------------------------------------------------------------------


def test_flags_win_over_variables_and_those_over_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = [{"id": 1, "v": "ada"}, {"id": 2, "v": "bob"}]
    assert values() == both
    file.write_text('table = ["t"]\n')
    assert values() == both[:1]
    monkeypatch.setenv("PGTAIL_TABLE", "other")
    assert values() == both[1:]
    monkeypatch.setenv("PGTAIL_TABLE", "other,t")
    assert values() == both
    assert values("-t", "o*") == both[1:]
    monkeypatch.setenv("PGTAIL_TABLE", "")
    assert values() == both[:1]
    monkeypatch.setenv("PGTAIL_CONFIG", "")
    assert values() == both


def test_masked_columns_add_up(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text('redact = "t.v"\n')
    assert values() == [{"id": 1, "v": MASK}, {"id": 2, "v": "bob"}]
    assert values("--redact", "other.id") == [{"id": 1, "v": MASK}, {"id": MASK, "v": "bob"}]
    monkeypatch.setenv("PGTAIL_REDACT", "id,other.v")
    assert values() == [{"id": MASK, "v": MASK}] * 2


def test_redaction_and_its_key_from_the_file(file: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(bytes(range(32)))
    file.write_text(f'redact = ["v"]\nredact-hash = true\nredact-key-file = "{key}"\n')
    flags = ("--redact", "v", "--redact-hash", "--redact-key-file", str(key))
    hashed = values()
    assert hashed[0]["v"].startswith("hmac:")
    file.write_text("")
    assert values(*flags) == hashed


def test_inspect_masks_by_the_file_and_shows_every_message(file: Path) -> None:
    file.write_text('redact = ["v"]\ntable = ["other"]\n')
    lines = decode(RECV, name="inspect").objects
    assert {"Begin", "Commit", "Relation", "Insert"} <= {line["kind"] for line in lines}
    cells = [field for line in lines for field in line["fields"] if field.get("column") == "v" and "(" in field["type"]]
    assert {(field["hex"], field["value"]) for field in cells} == {(None, MASK)}


def test_options_that_are_not_lists(file: Path) -> None:
    file.write_text('output = "table"\nmax-rows = 1\ncolor = "always"\nnumbers = "string"\n')
    result = command("decode", "-", input=DUMP, environment={"PGTAIL_CONFIG": str(file)})
    assert b"1 not shown (--max-rows 1)" in result.stdout
    assert b"\x1b[" in result.stdout
    result = command("decode", "-", input=DUMP, environment={"PGTAIL_CONFIG": str(file), "PGTAIL_COLOR": "never"})
    assert b"\x1b[" not in result.stdout
    result = command("decode", "-o", "json", "-", input=DUMP, environment={"PGTAIL_CONFIG": str(file)})
    assert result.lines[0].startswith(b'{"op":"insert"')


def test_every_setting_is_the_default_of_an_option() -> None:
    used = set()
    for name in COMMANDS:
        found = main.get_command(click.Context(main), name)
        assert found is not None
        configured = [one for one in found.params if isinstance(one, Configured | ConfiguredArgument)]
        used |= {key_of(one) for one in configured}
        for one in configured:
            assert SETTINGS[key_of(one)] == kind(one), one.name
    assert used == set(SETTINGS) - {"timezone"}, "for --utc"


def kind(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return "flag"
    if parameter.multiple:
        return "one by one" if key_of(parameter) in ("where", "highlight") else "list"
    return "number" if parameter.callback is not None else "text"


def test_every_command_that_shows_values_masks() -> None:
    """Each has the option, which the config file sets. `record` stores what the server sent, and shows no values."""
    others = {"capture", "config", "completion", "ddl", "demo", "doctor", "help", "record", "slot", "spark"}
    for name in set(COMMANDS) - others:
        found = main.get_command(click.Context(main), name)
        assert found is not None
        assert any(isinstance(one, Configured) and key_of(one) == "redact" for one in found.params), name


def test_spark_refuses_to_run_if_values_are_masked(file: Path, tmp_path: Path) -> None:
    """Its tables would contain the values."""
    file.write_text('redact = ["v"]\n')
    out = tmp_path / "out"
    result = here("spark", "changes", tmp_path, out)
    assert result.status == 2
    assert f"{file}: redact: pgtail spark cannot mask values" in result.stderr
    assert not list(out.glob("**/*.parquet"))
    assert here("spark", "changes", "--help").status == 0


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('slto = "a"', "unknown key slto; did you mean slot?"),
        ("colour = 1", "unknown key colour; did you mean color?"),
        ("xyzzy = 1", "unknown key xyzzy; there are dsn, timezone, slot, publication,"),
        ("slot = 5", "slot: expected a string"),
        ("max-rows = -1", "max-rows: expected a non-negative integer"),
        ("max-rows = true", "max-rows: expected a non-negative integer"),
        ("max-rows = 1.5", "max-rows: expected a non-negative integer"),
        ("redact = [1]", "redact: expected a string or a list of strings"),
        ("redact-hash = 'yes'", "redact-hash: expected true or false"),
        ("dsn = 2026-01-01", "dsn: expected a string"),
        ("[table]", "table: expected a string or a list of strings"),
        ("output = 'xml'", "output: 'xml' is not one of 'table', 'line'"),
        ("slot", "after a key in a key/value pair (at"),
        ("where = ['id']", "expected an operator"),
        ("slot = '\xff'", "this is not TOML: it is not in UTF-8"),
    ],
)
def test_a_wrong_file(file: Path, text: str, words: str) -> None:
    file.write_text(text, encoding="latin-1")
    result = here("decode", RECV)
    assert (result.status, result.stdout) == (2, b"")
    assert result.stderr.startswith("pgtail: error: " + ("" if "where" in text else f"{file}: "))
    assert words in result.stderr
    assert here("decode", "--help").status == 0


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("PGTAIL_MAX_ROWS", "ten", "PGTAIL_MAX_ROWS: expected a non-negative integer"),
        ("PGTAIL_MAX_ROWS", "9" * 5000, "PGTAIL_MAX_ROWS: expected a non-negative integer"),
        ("PGTAIL_REDACT_HASH", "perhaps", "PGTAIL_REDACT_HASH: expected 1 or 0"),
        ("PGTAIL_OUTPUT", "xml", "PGTAIL_OUTPUT: 'xml' is not one of"),
        ("PGTAIL_CONFIG", "/no/such", "PGTAIL_CONFIG: there is no file /no/such"),
    ],
)
def test_a_wrong_variable(name: str, value: str, words: str) -> None:
    result = here("decode", RECV, **{name: value})
    assert (result.status, result.stdout) == (2, b"")
    assert f"pgtail: error: {words}" in result.stderr


def test_unreadable_file_is_an_error(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the values that it masks would be shown."""
    file.unlink()
    assert command("decode", RECV, environment={}).status == 0
    file.symlink_to(file.with_name("gone"))
    for wrong in (file, file.parent):
        monkeypatch.delenv("PGTAIL_CONFIG", raising=False)
        result = here("config", **({"PGTAIL_CONFIG": str(wrong)} if wrong != file else {}))
        assert result.status == 2
        assert f"pgtail: error: {wrong}: " in result.stderr
    file.unlink()
    file.write_text("x = " + "[" * 5000)
    assert here("config").status == 2


def test_unsearchable_folder_is_an_error(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lstat(path: str) -> None:
        assert path == str(file)
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(settings, "os", SimpleNamespace(**vars(os) | {"lstat": lstat}))  # root may search every folder
    result = here("config")
    assert (result.status, f"{file}: Permission denied" in result.stderr) == (2, True)


# -- pgtail config -----------------------------------------------------------------------------------------------------


def test_config_shows_effective_values_and_their_sources(file: Path) -> None:
    file.write_text('slot = "audit"\nmax-rows = 3\nredact = ["v"]\nwhere = ["v = ada", "id > 3"]\n')
    shown = json.loads(config("-o", "json", PGTAIL_SLOT="other", PGTAIL_REDACT="w").stdout)
    assert shown["file"] == str(file)
    assert shown["settings"] == {
        "slot": {"value": "other", "from": "PGTAIL_SLOT"},
        "where": {"value": ["v = ...", "id > 3"], "from": str(file)},
        "redact": {"value": ["v", "w"], "from": f"{file}, PGTAIL_REDACT"},
        "max-rows": {"value": 3, "from": str(file)},
    }
    lines = config(PGTAIL_SLOT="other").stdout.decode().splitlines()
    assert lines[0] == f"config file  {file}"
    assert 'slot             "other"   from PGTAIL_SLOT' in lines
    assert f"max-rows         3   from {file}" in lines
    assert "publication      -" in lines
    assert "ada" not in "".join(lines)
    assert [line.split()[0] for line in lines[1:]] == list(SETTINGS)
    assert "PGTAIL_SLOTT is not a setting" in config(PGTAIL_SLOTT="x").stderr


@pytest.mark.parametrize(
    "dsn",
    [
        "host=h password=hunter2 user=u",
        "host=h password='hunter2 ' sslpassword = hunter2",
        "postgresql://u:hunter2@h/shop",
        "postgresql://u@h/shop?password=hunter2&sslmode=require",
        "postgres://u:hunter2@h:x:y/",
        "host=h passwort=hunter2",
    ],
)
def test_config_never_shows_a_password(file: Path, dsn: str) -> None:
    file.write_text(f'dsn = "{dsn}"\n')
    for arguments in ((), ("-o", "json")):
        result = config(*arguments)
        shown = result.stdout.decode()
        assert "hunter2" not in shown + result.stderr
        assert "host=h" in shown or "cannot read it" in shown


def test_bytes_that_are_not_text_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    result = command("config", "-o", "json", environment={"PGTAIL_SLOT": "a\udcff\x9b"})
    assert (result.status, result.stdout.isascii()) == (0, True)
    assert json.loads(result.stdout)["settings"]["slot"]["value"] == "a\udcff\x9b"


def test_without_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGTAIL_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert f"config file  none (looked for {tmp_path}/pgtail/config.toml)" in config().stdout.decode()
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")  # the specification says to ignore a relative path
    monkeypatch.setenv("HOME", str(tmp_path))
    assert f"{tmp_path}/.config/pgtail/config.toml" in config().stdout.decode()


def test_an_environment_without_settings() -> None:
    names = [variable(key) for key in SETTINGS]
    assert unset({"PGHOST": "h", "PGTAIL_PURE": "1", **dict.fromkeys(names, "x")}) == {
        "PGHOST": "h",
        "PGTAIL_PURE": "1",
        "PGTAIL_CONFIG": "",
    }


# -- a server ----------------------------------------------------------------------------------------------------------


def test_slot_is_read_by_the_settings_of_the_file(newest_database: Database, file: Path) -> None:
    """Without arguments: the file names the server, the slot and the masked columns. In every format."""
    newest_database.execute(
        "CREATE TABLE people (id int PRIMARY KEY, mail text)", "CREATE PUBLICATION p FOR ALL TABLES"
    )
    newest_database.execute("CREATE PUBLICATION other FOR TABLE people WHERE (id > 1)")
    newest_database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    newest_database.execute("INSERT INTO people VALUES (1, 'ada@x.org'), (2, 'bob@x.org'), (3, NULL)")
    file.write_text(
        f'dsn = "{newest_database.conninfo()}"\nslot = "s"\npublication = ["other"]\nredact = ["people.mail"]\n'
    )
    for output in set(OUTPUTS) - {"sql"}:
        ran = command("stream", "--until", "now", "-v", "-o", output)
        assert ran.status == 0
        shown = ran.stdout.decode()
        assert "@x.org" not in shown + ran.stderr
        assert shown.count(MASK) == 1
        assert f"settings: dsn, slot, publication, redact from {file}" in ran.stderr
