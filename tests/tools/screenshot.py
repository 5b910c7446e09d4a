"""Draws the README's picture: python -m tests.tools.screenshot [FILE.svg]

Runs a few transactions on an embedded server, tails them with `pgtail stream`, and exports what that wrote with rich.
Nothing in the picture is written by hand: its times and log positions are those of the run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

from tests.support.servers import Database, Servers, fresh_database, installations

TARGET = Path(__file__).parents[2] / "man" / "table.svg"
WIDTH = 110
CELL = 12.2
"""Width of a character in rich's pictures."""
TITLE = "pgtail stream --slot shop --max-rows 4"

SETUP = """
CREATE TABLE orders (id int PRIMARY KEY, customer text, total numeric(10,2), status text, note text, body text);
ALTER TABLE orders ALTER body SET STORAGE EXTERNAL, REPLICA IDENTITY FULL;
CREATE TABLE cart_items (id int PRIMARY KEY, order_id int, article text);
CREATE SCHEMA bank;
CREATE TABLE bank.accounts (id int PRIMARY KEY, owner text, balance numeric(10,2));
CREATE TABLE sessions (id int PRIMARY KEY);
CREATE TABLE "événements" (id int PRIMARY KEY, name text, doc jsonb, at timestamptz);
INSERT INTO orders VALUES (1041, 'Grace Hopper', 80.00, 'new', '', repeat('long ', 1000));
INSERT INTO cart_items VALUES (7, 1041, 'compiler');
INSERT INTO bank.accounts VALUES (12, 'Ada', 1200.00), (77, 'Bob', 0.00);
CREATE PUBLICATION shop FOR ALL TABLES;
"""

WORKLOAD = (
    """
    INSERT INTO orders VALUES (1042, 'Ada Lovelace', 129.50, 'new', NULL, 'gift');
    UPDATE orders SET status = 'paid' WHERE id = 1041;
    INSERT INTO cart_items VALUES (8, 1042, 'engine, analytical');
    DELETE FROM cart_items WHERE id = 7;
    """,
    """
    BEGIN;
    UPDATE bank.accounts SET balance = balance - 500 WHERE id = 12;
    UPDATE bank.accounts SET balance = balance + 500 WHERE id = 77;
    SELECT pg_logical_emit_message(true, 'audit', E'moved by teller 4\\x1b[31m');
    PREPARE TRANSACTION 'transfer-91';
    """,
    "COMMIT PREPARED 'transfer-91'",
    """
    TRUNCATE sessions RESTART IDENTITY CASCADE;
    INSERT INTO "événements" VALUES (1, '日本語 ok', '{"k": 1}', 'infinity');
    INSERT INTO sessions SELECT generate_series(1, 5000);
    """,
)


def tail(database: Database) -> str:
    """What `pgtail stream` writes to a terminal about the workload."""
    database.execute(SETUP)
    database.query("SELECT pg_create_logical_replication_slot('shop', 'pgoutput', false, true)")
    database.execute(*WORKLOAD)
    command = [sys.executable, "-c", "from pgtail.__main__ import main; main()", "stream", database.conninfo(),
               "--slot", "shop", "--until", "now", "-o", "table", "--color", "always", "--max-rows", "4"]  # fmt: skip
    environment = {**os.environ, "COLUMNS": str(WIDTH)}
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment, timeout=60).stdout.decode()


def draw(text: str, target: Path) -> None:
    """Export text with colours as a picture of a terminal."""
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True, color_system="standard")
        for line in text.splitlines():
            console.print(Text.from_ansi(line))
    svg = console.export_svg(title=TITLE, theme=SVG_EXPORT_THEME, unique_id="pgtail")
    target.write_text(_PADDED.sub(_shifted, svg), encoding="utf-8")


_PADDED = re.compile(r' x="([0-9.]+)" (y="[0-9.]+") textLength="([0-9.]+)"( clip-path="[^"]+")>((?:&#160;)+)')


def _shifted(match: re.Match[str]) -> str:
    """Leading spaces as an offset: some programs drop the spaces, which would move the text after them."""
    x, y, length, clip, spaces = match.groups()
    shift = spaces.count(";") * CELL
    return f' x="{float(x) + shift:g}" {y} textLength="{float(length) - shift:g}"{clip}>'


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    servers = Servers()
    try:
        with fresh_database(servers.get(list(installations())[-1])) as database:
            draw(tail(database), target)
    finally:
        servers.close()
    print(f"wrote {target}")


if __name__ == "__main__":
    main()
