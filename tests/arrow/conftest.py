"""Without the extra `arrow` these tests are skipped, with the reason."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

_MISSING = importlib.util.find_spec("pyarrow") is None


class _Missing(pytest.Module):
    """A file of tests that cannot even be imported."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        reason = "The extra `arrow` is not installed."
        if "spark" in os.environ.get("PGTAIL_REQUIRE", ""):
            pytest.fail(f"{reason} PGTAIL_REQUIRE asks for it.")
        pytest.skip(reason)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Files below this folder are imported only where they can be."""
    return _Missing.from_parent(parent, path=module_path) if _MISSING else None
