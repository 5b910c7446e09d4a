"""Passwords never show: in no output, message or file, however they are given; and what is said of TLS is true."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from urllib.parse import quote

import pytest

from pgtail.demo.installation import Installation
from tests.conftest import StartServer
from tests.support import forked
from tests.support.refused import SECRET, publish, role, without_password
from tests.support.run import here
from tests.support.servers import Database, fresh_database, installations
from tests.support.tail import wait_for

URI = f"postgresql://u:{quote(SECRET)}@127.0.0.1:1/db"
MISPLACED = [
    [URI],
    ["help", URI],
    ["slot", URI],
    ["slot", "create", URI],
    ["slot", "drop", URI, "--yes"],
    ["decode", URI],
    ["decode", "-f", f"{URI}/x", "-"],
    ["decode", f"s3://key:{quote(SECRET)}@bucket/x"],
    ["inspect", URI],
    ["stats", f"{URI}:x"],
    ["stats", f"{URI}:x", "--for", "1s"],
    ["stream", "-f", f"{URI}/x"],
    ["stream", "-h", URI],
    ["stream", "-p", URI],
    ["stream", "-U", URI, "-h", "127.0.0.1", "-p", "1"],
    ["stream", f"u:{SECRET}@127.0.0.1/db"],
    ["stream", f"postgresql://u:{SECRET}@x@127.0.0.1/db"],
    ["stream", "host=127.0.0.1", "port=1", f"password={SECRET}"],
    ["stream", f"host=127.0.0.1 port=x password={SECRET}"],
    ["stream", f"host=127.0.0.1 port=1 password='{SECRET} x'", "-vv"],
    ["stream", URI, "--until", "x"],
    ["record", URI, "-D", URI],
    ["expect", URI, "-t", "t"],
    ["doctor", URI, "extra"],
]


@pytest.mark.parametrize("arguments", MISPLACED, ids=" ".join)
def test_a_password_in_a_wrong_place(arguments: list[str]) -> None:
    found = here(*arguments, PGCONNECT_TIMEOUT="2", PGTAIL_CONFIG="")
    assert found.status in (1, 2, 3, 4, 75)
    shown = found.stdout.decode() + found.stderr
    assert SECRET not in shown
    assert quote(SECRET) not in shown


def test_every_way_to_give_a_password(newest_database: Database, tmp_path: Path) -> None:
    """Also of what is recorded: nothing in the capture."""
    forked.load()
    publish(newest_database)
    newest_database.execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput')", "INSERT INTO t VALUES (1)")
    with role(newest_database, "reader", "REPLICATION") as conninfo:
        bare = without_password(conninfo)
        port = newest_database.server.port
        passfile, service, config = tmp_path / "pgpass", tmp_path / "service", tmp_path / "config.toml"
        passfile.write_text(f"127.0.0.1:{port}:*:reader:{SECRET}\n")
        passfile.chmod(0o600)
        service.write_text(f"[here]\nhost=127.0.0.1\nport={port}\nuser=reader\npassword={SECRET}\n")
        config.write_text(f'dsn = "{conninfo}"\n')
        uri = f"postgresql://reader:{quote(SECRET)}@127.0.0.1:{port}/{newest_database.name}"
        for dsn, variables in (
            (conninfo, {}),
            (uri, {}),
            (bare, {"PGPASSWORD": SECRET}),
            (bare, {"PGPASSFILE": str(passfile)}),
            (f"service=here dbname={newest_database.name}", {"PGSERVICEFILE": str(service)}),
            (None, {"PGTAIL_DSN": conninfo}),
            (None, {"PGTAIL_CONFIG": str(config)}),
        ):
            given = [] if dsn is None else [dsn]
            folder = tmp_path / f"capture-{len(list(tmp_path.iterdir()))}"
            commands = [
                (0, ["stream", *given, "-S", "s", "--until", "now", "-vv"]),
                (3, ["stream", *given, "-S", "none"]),
                (0, ["stats", *given, "-S", "s", "-o", "json"]),
                (0, ["config"]),
                (0, ["record", *given, "-S", folder.name.replace("-", "_"), "-D", str(folder), "--until", "now"]),
                (0, ["slot", "list", *given, "-o", "table"]),
                (1, ["doctor", *given, "-o", "json"]),
                (3, ["stream", *given, "-d", f"nosuch password={SECRET}"]),
            ]
            for status, command in commands if dsn is conninfo else commands[:3]:
                with pytest.MonkeyPatch.context() as patch:
                    for name, value in variables.items():
                        patch.setenv(name, value)
                    ran = forked.run(*command)
                assert ran.status <= status, (command, ran.err.decode())
                assert SECRET.encode() not in ran.out + ran.err, command
                assert (b"config.toml has a password" in ran.err) is (
                    "PGTAIL_CONFIG" in variables and command != ["config"]
                )
            assert [file for file in folder.glob("*") if SECRET.encode() in file.read_bytes()] == []
        config.chmod(0o600)
        assert "has a password" not in here("slot", "list", PGTAIL_CONFIG=str(config)).stderr


def _with_tls() -> Installation:
    for installation in reversed(installations().values()):
        linked = subprocess.run(["ldd", str(installation.program("postgres"))], capture_output=True, check=False)
        if b"libssl" in linked.stdout:
            return installation
    pytest.skip("no server here was built with OpenSSL")


def test_modes_of_tls(start_server: StartServer, tmp_path: Path) -> None:
    """As libpq has them: a certificate is compared only if that was asked for; -v says what was negotiated."""
    installation = _with_tls()
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate")
    server = start_server(installation)
    with fresh_database(server) as database:
        publish(database)
        folder = Path(database.value("SHOW data_directory"))
        made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
        files = ["-keyout", str(folder / "server.key"), "-out", str(folder / "server.crt")]
        subprocess.run([*made, *files], check=True, capture_output=True)
        (folder / "server.key").chmod(0o600)
        owner = (folder / "PG_VERSION").stat()
        for name in ("server.key", "server.crt"):
            os.chown(folder / name, owner.st_uid, owner.st_gid)
        root = tmp_path / "root.crt"
        shutil.copy(folder / "server.crt", root)
        database.execute("ALTER SYSTEM SET ssl = on", "SELECT pg_reload_conf()")
        wait_for("TLS", lambda: database.value("SHOW ssl") == "on")
        command = ["--until", "now", "-v"]
        for more, status, words in (
            ({"sslmode": "disable"}, 0, "; not encrypted by TLS"),
            ({"sslmode": "prefer"}, 0, "; TLS (TLSv1."),
            ({"sslmode": "require"}, 0, "; TLS (TLSv1."),
            ({"sslmode": "verify-ca", "sslrootcert": str(root)}, 0, "; TLS (TLSv1."),
            ({"sslmode": "verify-full", "sslrootcert": str(root)}, 3, "certificate was not accepted"),
            ({"sslmode": "verify-ca", "sslrootcert": str(tmp_path / "none")}, 3, "certificate was not accepted"),
        ):
            found = here("stream", database.conninfo(tcp=True, **more), *command)
            assert found.status == status, found.stderr
            assert words in found.stderr
        named = {"host": "localhost", "hostaddr": "127.0.0.1", "sslmode": "verify-full", "sslrootcert": str(root)}
        found = here("stream", database.conninfo(tcp=True, **named), *command)
        assert "; TLS (TLSv1." in found.stderr
        assert "; a local socket" in here("stream", database.conninfo(), *command).stderr
