"""Dates as day numbers, and log positions as text."""

from __future__ import annotations

import datetime

import pytest

from pgtail.pgoutput.scalars import civil_from_days, days_from_civil, days_text, lsn_text, parse_lsn

EPOCH = datetime.date(1970, 1, 1)


def test_days_and_dates_are_inverse() -> None:
    for days in (*range(-800_000, 800_000, 97), -(2**31), 2**31):
        assert days_from_civil(*civil_from_days(days)) == days


def test_dates_agree_with_datetime() -> None:
    for days in range(-700_000, 2_900_000, 89):
        date = EPOCH + datetime.timedelta(days)
        assert civil_from_days(days) == (date.year, date.month, date.day)


def test_year_0_is_1_bc() -> None:
    assert civil_from_days(days_from_civil(0, 2, 29)) == (0, 2, 29)
    assert days_text(0) == ("2000-01-01", False)
    assert days_text(-730_426) == ("0001-02-29", True)


@pytest.mark.parametrize("lsn", [0, 1, 0xFFFF_FFFF, 1 << 32, (1 << 64) - 1])
def test_log_positions_and_their_texts(lsn: int) -> None:
    assert parse_lsn(lsn_text(lsn)) == lsn
    assert parse_lsn(f" {lsn_text(lsn).lower()}\n") == lsn


@pytest.mark.parametrize(
    "text", ["", "0", "1/", "/1", "1/g", "-1/0", "1/123456789", "123456789/0", "1/2/3", "1 /2", "\uff10/1"]
)
def test_what_is_no_log_position(text: str) -> None:
    with pytest.raises(ValueError, match="is not a log position such as"):
        parse_lsn(text)
