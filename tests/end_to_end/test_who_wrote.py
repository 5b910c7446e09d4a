"""The settings in WHO WROTE IT of pgtail-server(7): the xid leads to the role and program in the server's log."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from pgtail.demo.server import EmbeddedServer
from tests.support.servers import fresh_database, installations
from tests.support.tail import stream, wait_for
from tests.tools.make_man import PARTS


def test_the_xid_of_a_change_is_in_the_servers_log(start_server: Callable[..., EmbeddedServer]) -> None:
    having = [one for one in installations().values() if any(one.bindir.parent.rglob("auto_explain.*"))]
    if not having:
        pytest.skip("no server has auto_explain: make servers")
    text = (PARTS / "pgtail-server.7.md").read_text(encoding="utf-8").partition("\n# WHO WROTE IT\n")[2]
    settings = dict(re.findall(r"^([\w.]+) = '?(.*?)'?$", text.partition("\n# ")[0], re.MULTILINE))
    assert "log_line_prefix" in settings
    server = start_server(having[-1], **settings)
    with fresh_database(server) as database:
        database.execute("CREATE TABLE t (id int)", "CREATE PUBLICATION p FOR TABLE t")
        database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
        with database.connect(application_name="billing") as session:
            session.execute("INSERT INTO t VALUES (1)")  # a transaction of one statement
        [change], _ = stream(database, "--slot", "s", "--until", "now")
    xid, log = change["xid"], r"user=postgres app=billing host=\S+ xid={} .*plan:\s+Query Text: INSERT INTO t VALUES"
    wait_for("line in the log", lambda: re.search(log.format(xid), server.log.read_text()))
