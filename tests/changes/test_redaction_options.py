"""Notes, errors and refusals about masked columns quote no value."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgtail.changes.redaction import MASK
from tests.changes.test_redaction import DUMP, inspect
from tests.support.encode import begin, commit, insert, recvlogical, relation
from tests.support.run import decode


def test_condition_sees_the_unmasked_value_and_is_not_quoted() -> None:
    result = decode("--redact", "v", "--where", "v = one", input=DUMP)
    assert [line["new"] for line in result.objects] == [{"id": 1, "v": MASK}]
    result = decode("--redact", "colour", "--where", "colour = red", input=DUMP)
    assert "red" not in result.stderr.replace("redact", "")
    for wrong in ("id = secret", "id ~ (?P<secret>a)(?P<secret>b)"):
        result = decode("--redact", "id", "--where", wrong, input=DUMP)
        assert (result.status, "secret" in result.stderr) == (2, False)


def test_a_name_that_masked_nothing_is_a_warning_and_a_failure() -> None:
    result = decode("--redact", "id,people.email,email", "-q", input=DUMP)
    assert result.status == 1
    assert result.stderr == (
        'pgtail: warning: --redact people.email masked nothing; did you mean "E Mail"?\n'
        'pgtail: warning: --redact email masked nothing; did you mean "E Mail"?\n'
    )
    right = decode("--redact", "id,PEOPLE.id,public.t.v", input=DUMP)
    assert (right.status, right.stderr) == (0, "")
    result = decode("--redact", "peple.v", "--redact-hash", "--redact-key-file", __file__, "-q", input=DUMP)
    assert result.status == 1
    assert "--redact peple.v masked nothing; did you mean people." in result.stderr


def test_a_name_of_a_table_that_is_not_shown_is_right() -> None:
    for option in (("-t", "t"), ("--where", "id = 99"), ("--xid", "99")):
        result = decode("--redact", 'people."E Mail"', *option, input=DUMP)
        assert result.status == 0
        # Which name no column, and nothing about --redact.
        assert result.stderr.startswith("pgtail: note: 0 of 1 transaction matched; ") == (option[0] != "-t"), option
        assert "redact" not in result.stderr, option


def test_a_pattern_or_a_name_of_the_configuration_that_masked_nothing_is_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = "pgtail: note: no table had a column {} (--redact)\n"
    for rule in ("e?mails", "no*.email", "*.*.[e]mail"):
        result = decode("--redact", rule, input=DUMP)
        assert (result.status, result.stderr) == (0, note.format(rule))
    file = tmp_path / "config.toml"
    file.write_text('redact = ["users.email", "nosuch"]')
    monkeypatch.setenv("PGTAIL_CONFIG", str(file))
    noted = note.format("users.email") + note.format("nosuch")
    assert decode(input=DUMP).stderr == noted
    assert (decode("-q", input=DUMP).status, decode("-q", input=DUMP).stderr) == (0, "")
    result = decode("--redact", "email", input=DUMP)  # a part of a name in the file
    assert result.status == 1
    assert result.stderr == 'pgtail: warning: --redact email masked nothing; did you mean "E Mail"?\n' + noted


def test_without_a_table_nothing_was_left_unmasked() -> None:
    result = decode("--redact", "nosuch", input=recvlogical(begin(), insert("1", "a"), commit()))
    assert result.status == 0
    assert "nosuch" not in result.stderr


def test_an_input_that_was_not_read_to_its_end_does_not_fail(tmp_path: Path) -> None:
    """The column may be in the rest; what was shown was not masked by the name."""
    twice = recvlogical(relation(), begin(), insert("1", "a"), commit(), begin(8), insert("2", "b"), commit())
    said = "pgtail: warning: --redact w masked nothing in what was read\n"
    for options, name in ((("-n", "1"), "decode"), (("-n", "1"), "inspect"), (("-n", "1"), "stats")):
        result = decode(*options, "--redact", "w", input=twice, name=name)
        assert (result.status, result.stderr) == (0, said), name
    for name in ("decode", "inspect", "stats"):
        result = decode("--redact", "w", input=twice, name=name)
        assert (result.status, result.stderr) == (1, said.replace(" in what was read", "")), name
    damaged = decode("--redact", "w", input=twice + b"Z\0\0\n")
    assert damaged.status == 1
    assert damaged.stderr.startswith(said + "pgtail: error: ")


def test_errors_and_damaged_bytes_quote_nothing(tmp_path: Path) -> None:
    """A byte of a value in place of a kind of cell."""
    wrong = recvlogical(relation(), begin(), insert("1", "Z").replace(b"t\0\0\0\1Z", b"Z\0\0\0\1Z"))
    plain, masked = decode(input=wrong), decode("--redact", "v", input=wrong)
    assert plain.status == masked.status == 1
    assert "'Z' where" in plain.stderr
    assert f"{MASK} where" in masked.stderr
    assert "Z" not in masked.stderr
    path = tmp_path / "wrong.bin"
    path.write_bytes(wrong)
    for options in (("-o", "json"), ()):
        result = inspect(tmp_path, path, "--redact", "v", *options)
        assert result.status == 1
        last = result.stdout.decode().strip().splitlines()[-1]
        assert MASK in last
        assert "5a" not in last.partition('"error"')[2]
        assert " 5a" not in last


def _escaped(*messages: bytes) -> bytes:
    """As psql -At shows them under bytea_output = escape."""
    shown = ["".join([chr(c) if 31 < c < 127 else f"\\{c:03o}" for c in message]) for message in messages]
    return "".join([f"0/1{number}|7|{text}\n" for number, text in enumerate(shown)]).encode()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        # Bytes of a value in place of a cell's length: AAAA.
        (recvlogical(relation(), begin(), insert("1", "Z").replace(b"t\0\0\0\1Z", b"tAAAAZ")), "1094795"),
        # An invalid backslash in the escape format.
        (_escaped(relation(), begin(), insert("1", "Zeta"), commit()).replace(b"Zeta", b"Z\\ta"), "'\\\\'"),
    ],
    ids=["length", "character"],
)
def test_errors_quote_no_length_and_no_character_that_may_be_a_value(data: bytes, words: str) -> None:
    plain, masked = decode(input=data), decode("--redact", "v", input=data)
    assert plain.status == masked.status == 1
    assert words in plain.stderr
    assert words not in masked.stderr
    assert MASK in masked.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--redact", ""), "--redact names no column"),
        (("--redact", "a.b.c.d"), "expected COLUMN, TABLE.COLUMN or SCHEMA.TABLE.COLUMN"),
        (("--redact", "a", "--redact-hash"), "needs --redact-key-file"),
        (("--redact-hash",), "--redact-hash needs --redact"),
        (("--redact", "a", "--redact-hash", "--redact-key-file", "/no/such"), "/no/such: No such file or directory"),
        (("--redact", "a", "--redact-hash", "--redact-key-file", "/dev/null"), "has 0 bytes, fewer than 16"),
    ],
)
def test_invalid_options_are_refused(options: tuple[str, ...], words: str) -> None:
    result = decode(*options, input=DUMP)
    assert (result.status, result.stdout) == (2, b"")
    assert words in result.stderr
