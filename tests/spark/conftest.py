"""One Spark session for all tests of a process; what needs the extra `spark` is skipped without it, with the reason."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pgtail.errors import OptionError
from pgtail.spark.session import check_installed, session
from tests.spark.recorded import QUICK


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything below this folder is of Spark; with pytest-xdist one process has all of it."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(autouse=True, scope="session")
def _needs_spark() -> None:
    try:
        check_installed()
    except OptionError as error:
        if "spark" in os.environ.get("PGTAIL_REQUIRE", ""):
            pytest.fail(f"{error}\nPGTAIL_REQUIRE asks for it")
        pytest.skip(str(error).splitlines()[0])


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session on two cores."""
    with session("local[2]", QUICK) as started:
        yield started
