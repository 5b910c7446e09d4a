"""Messages in a table of a real server, for psql to print."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgtail.demo.server import EmbeddedServer
from tests.inputs.test_psql import Printed
from tests.support.servers import fresh_database


@pytest.fixture(scope="module")
def printed(newest_server: EmbeddedServer) -> Iterator[Printed]:
    with fresh_database(newest_server) as database:
        yield Printed(database)
