"""Local time: offsets, and what becomes of a local time in UTC, compared with Python's zoneinfo."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from pgtail.local_time import is_utc, to_local, to_utc, use_zone, zone_text
from pgtail.outputs import fields
from pgtail.outputs.fields import local_clock, local_time
from tests.support.corpus import capture
from tests.support.run import command
from tests.support.zones import zone

ZONES = ["Europe/Berlin", "America/St_Johns", "Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Apia"]
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
RECV = capture("Z_small", "p1").forms["recv.bin"]


@pytest.mark.parametrize("name", ZONES)
def test_offsets_are_those_of_the_zone(name: str, seed: random.Random) -> None:
    with zone(name):
        assert not is_utc()
        for _ in range(300):
            micros = seed.randrange(-(10**15), 10**15)
            there = (EPOCH + timedelta(microseconds=micros)).astimezone(ZoneInfo(name))
            naive = there.replace(tzinfo=None) - EPOCH.replace(tzinfo=None)
            assert to_local(micros) == naive // timedelta(microseconds=1)
            try:
                assert to_utc(to_local(micros)) == micros
            except ValueError as error:
                assert "show it twice" in str(error)
                assert there.replace(fold=1).utcoffset() != there.replace(fold=0).utcoffset()


def test_times_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    with zone("America/St_Johns"):
        assert zone_text(0) == "-03:30"
        assert local_time(0) == "1999-12-31 20:30:00.000000-03:30"
        assert local_clock(1_234_567) == "1999-12-31 20:30:01-03:30"
        monkeypatch.setattr(fields, "time_ns", lambda: 946_684_800_000_000_000)
        assert local_clock(1_234_567) == "20:30:01.234-03:30"
        assert local_clock(-86_400_000_000) == "12-30 20:30:00-03:30"
        far = 1 << 62
        assert to_utc(to_local(far)) == far, "where the C library knows no zone"
    with zone("UTC"):
        assert is_utc()
        assert local_time(0) == "2000-01-01 00:00:00.000000Z"
        assert to_utc(5) == 5


@pytest.mark.parametrize("name", ["", "Nowhere/City", "../etc/passwd", "UTC\0"])
def test_a_zone_that_is_not_installed(name: str) -> None:
    with pytest.raises(ValueError, match="is not a time zone that is installed"):
        use_zone(name)


@pytest.mark.parametrize("output", ["line", "table"])
@pytest.mark.parametrize("pure", ["", "1"])
def test_outputs_for_people_have_local_time(output: str, pure: str, tmp_path: Path) -> None:
    there = {"TZ": "Asia/Kolkata", "PGTAIL_PURE": pure}
    result = command("decode", "-o", output, RECV, environment=there)
    if output == "line" and b"+05:30" not in result.stdout:
        pytest.skip("the machine has no time zones")
    in_utc = command("decode", "-o", output, "--utc", RECV, environment=there).stdout
    assert command("decode", "-o", output, RECV, environment={"TZ": "UTC", "PGTAIL_PURE": pure}).stdout == in_utc
    assert b"Z " in in_utc
    assert result.stdout.count(b"+05:30") == in_utc.count(b"Z ") > 0
    config = tmp_path / "config.toml"
    config.write_text('timezone = "Asia/Kolkata"')
    configured = {"PGTAIL_CONFIG": str(config), "TZ": "UTC", "PGTAIL_PURE": pure}
    assert command("decode", "-o", output, RECV, environment=configured).stdout == result.stdout
    assert command("decode", "-o", output, "--utc", RECV, environment=configured).stdout == in_utc


def test_other_outputs_have_utc() -> None:
    for output in ("json", "csv", "sql", "wal2json"):  # not debezium, whose ts_ms is the time of the run
        there, here = [
            command("decode", "-o", output, RECV, environment={"TZ": name}).stdout for name in ("Asia/Kolkata", "UTC")
        ]
        assert there == here, output


def test_a_note_gives_a_local_time_in_utc() -> None:
    there = {"TZ": "Asia/Kolkata"}
    result = command("decode", "--since", "2026-11-22T10:00", RECV, environment=there)
    assert result.stderr.startswith("pgtail: note: --since is 2026-11-22T04:30:00Z\n")
    for arguments in (("--utc",), ("-q",)):
        assert (
            "--since"
            not in command("decode", *arguments, "--since", "2026-11-22T10:00", RECV, environment=there).stderr
        )
    assert "--since" not in command("decode", "--since", "2026-11-22T10:00Z", RECV, environment=there).stderr


def test_a_setting_that_is_no_zone() -> None:
    result = command("decode", RECV, environment={"PGTAIL_TIMEZONE": "Nowhere"})
    assert result.status == 2
    assert result.stderr == (
        "pgtail: error: PGTAIL_TIMEZONE: 'Nowhere' is not a time zone that is installed, such as UTC or Europe/Berlin\n"
    )
