"""Dates as day numbers."""

from __future__ import annotations

import datetime

from pgtail.pgoutput.scalars import civil_from_days, days_from_civil, days_text

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
