"""One Spark session for all tests of a process; without the extra `spark` they are skipped, with the reason."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pgtail.demo.server import EmbeddedServer
from pgtail.errors import OptionError
from pgtail.spark.session import check_installed, session
from tests.support.spark.quick import QUICK


class _Missing(pytest.Module):
    """A file of tests that cannot even be imported."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        try:
            check_installed()
        except OptionError as error:
            reason = str(error).splitlines()[0]
            if "spark" in os.environ.get("PGTAIL_REQUIRE", ""):
                pytest.fail(f"{reason} PGTAIL_REQUIRE asks for it.")
            pytest.skip(reason)
        return []


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Files below this folder are imported only where they can be."""
    try:
        check_installed()
    except OptionError:
        return _Missing.from_parent(parent, path=module_path)
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything below this folder is of Spark."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session on two cores."""
    with session("local[2]", QUICK) as started:
        yield started


@pytest.fixture(scope="session")
def world(newest_server: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a server went through, recorded: tests.support.spark.world.World."""
    from tests.support.spark.world import make

    return make(newest_server, tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="session")
def whole(spark: Any, world: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything made of it in one go."""
    from tests.support.spark import model
    from tests.support.spark.world import apply

    out = tmp_path_factory.mktemp("whole") / "out"
    applied = apply(spark, out, [str(world.capture)])
    assert applied.changes == sum(row["op"] in model.OPS for row in world.rows)
    assert apply(spark, out, [], history=True).changes == applied.changes
    return out
