"""Credentials that change while pgtail runs: a recorder uses the new ones when it connects again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pgtail.demo.installation import Installation
from tests.conftest import StartServer
from tests.support.run import command
from tests.support.servers import Database, installations
from tests.support.services import Service, service, walsender
from tests.support.tail import terminate, wait_for

_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc"]


def records_both_rows(
    arguments: list[str],
    environment: dict[str, str],
    database: Database,
    refuse: Callable[[], None],
    renew: Callable[[Service], None],
) -> None:
    """A recorder is refused with what it has, goes on with what it gets, and records both rows."""
    with service(*arguments, environment=environment) as running:
        running.event("slot_created")
        walsender(database)
        database.execute("INSERT INTO t VALUES (1)")
        refuse()
        terminate(database)
        renew(running)
        running.event("reconnected")
        database.execute("INSERT INTO t VALUES (2)")
        wait_for("rows", lambda: running.value("pgtail_read_rows_total") == 2)
        running.process.send_signal(signal.SIGTERM)
        assert running.end() == 0
    directory = arguments[arguments.index("-D") + 1]
    assert [one["new"]["id"] for one in command("decode", "-o", "json", directory).objects] == [1, 2]


@pytest.mark.parametrize("kind", ["password file", "service file"])
def test_a_password(newest_database: Database, tmp_path: Path, kind: str) -> None:
    database, file, role = newest_database, tmp_path / "passwords", f"reader_{os.getpid()}"
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR ALL TABLES")
    database.execute(f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'one'")
    server = f"host=127.0.0.1 port={database.server.port} user={role} dbname={database.name}"

    def password(text: str) -> None:
        as_service = "\n".join(["[shop]", *server.split(), f"password={text}", ""])
        file.write_text(as_service if kind == "service file" else f"*:*:*:{role}:{text}\n")
        file.chmod(0o600)

    def renew(running: Service) -> None:
        assert "password authentication failed" in running.becomes(503, lambda reason: "password" in reason)
        password("two")

    password("one")
    dsn, variable = ("service=shop", "PGSERVICEFILE") if kind == "service file" else (server, "PGPASSFILE")
    try:
        records_both_rows(
            ["record", dsn, "-S", "cap", "-D", str(tmp_path / "c")],
            {variable: str(file)},
            database,
            lambda: database.execute(f"ALTER ROLE {role} PASSWORD 'two'"),
            renew,
        )
    finally:
        database.execute(f"DROP ROLE {role}")


class _Authority:
    """A certificate authority in a directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.certificate, self._key, self._directory = directory / "ca.crt", directory / "ca.key", directory
        self._make("authority", self.certificate, self._key)

    def certify(self, name: str) -> tuple[Path, Path]:
        """A certificate for this name, and its key."""
        certificate, key = self._directory / f"{name}.crt", self._directory / f"{name}.key"
        self._make(name, certificate, key, "-CA", str(self.certificate), "-CAkey", str(self._key))
        return certificate, key

    def _make(self, name: str, certificate: Path, key: Path, *more: str) -> None:
        request = ["openssl", "req", "-x509", *_KEY, "-days", "2", "-subj", f"/CN={name}"]
        subprocess.run(
            [*request, "-keyout", str(key), "-out", str(certificate), *more], check=True, capture_output=True
        )
        key.chmod(0o600)


def _with_tls() -> Installation | None:
    """The newest server that was built with OpenSSL."""
    those = [one for one in installations().values() if b"libssl" in one.program("postgres").read_bytes()]
    return those[-1] if those else None


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl, which makes the certificates, is not installed")
def test_certificates(start_server: StartServer, tmp_path: Path) -> None:
    """The server, the client and both of their authorities get new ones."""
    installation = _with_tls()
    if installation is None:
        pytest.skip("no server here was built with TLS")
    server = start_server(installation)
    database = Database(server, "postgres")
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR ALL TABLES")
    database.execute("CREATE ROLE reader LOGIN REPLICATION")
    rules = server.data / "pg_hba.conf"
    rules.write_text(f"hostssl all reader 127.0.0.1/32 cert\n{rules.read_text()}")
    mine = tmp_path / "mine"
    mine.mkdir()

    def serve(authority: _Authority) -> None:
        for path, name in zip((authority.certificate, *authority.certify("server")), _SERVED, strict=True):
            shutil.copy(path, server.data / name)
            os.chown(server.data / name, server.data.stat().st_uid, -1)
        database.query("SELECT pg_reload_conf()")

    def give(authority: _Authority) -> None:
        for path, name in zip((authority.certificate, *authority.certify("reader")), _GIVEN, strict=True):
            shutil.copy(path, mine / name)

    def renew(running: Service) -> None:
        running.becomes(503, lambda reason: "certificate" in reason)
        give(second)

    first, second = _Authority(tmp_path / "first"), _Authority(tmp_path / "second")
    for setting, name in zip(("ssl_ca_file", "ssl_cert_file", "ssl_key_file"), _SERVED, strict=True):
        database.execute(f"ALTER SYSTEM SET {setting} = '{name}'")
    database.execute("ALTER SYSTEM SET ssl = on")
    serve(first)
    give(first)
    dsn = f"host=127.0.0.1 port={server.port} user=reader dbname=postgres sslmode=verify-ca"
    dsn += "".join([f" {name}={mine / name}" for name in _GIVEN])
    records_both_rows(
        ["record", dsn, "-S", "cap", "-D", str(tmp_path / "c")], {}, database, lambda: serve(second), renew
    )


_SERVED = ("ca.crt", "own.crt", "own.key")
_GIVEN = ("sslrootcert", "sslcert", "sslkey")
"""The files of a client, by libpq's names for them."""
