"""`pgtail config`: the settings in force and where each comes from, without passwords."""

from __future__ import annotations

import json
import os

import click

from pgtail.changes.condition import tests_of
from pgtail.changes.filters import condition_of
from pgtail.changes.redaction import Redaction
from pgtail.cli.command import Command
from pgtail.cli.settings import SETTINGS, Setting, config_file, default_file, settings, variable
from pgtail.commands.console.messages import exit_statuses, messages
from pgtail.commands.console.styling import report_json
from pgtail.commands.options.common import ReportOptions
from pgtail.commands.output.file_sink import put
from pgtail.errors import OptionError
from pgtail.terminal.escape import escape


@click.command("config", cls=Command)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Lines for people, or a JSON object.",
)
@click.pass_context
def command(ctx: click.Context, output: str) -> None:
    """Show the settings in force, and where they come from.

    A setting is the default of the option with the same name. It is read from pgtail/config.toml in $XDG_CONFIG_HOME
    or ~/.config (PGTAIL_CONFIG names another file, empty for none), or from a variable such as PGTAIL_SLOT, which
    overrides the file. A flag overrides both; --redact adds to them. Passwords are never shown.

    \b
    pgtail config
    PGTAIL_CONFIG= pgtail config -o json
    """
    file = config_file(os.environ)
    in_use = settings(ctx)
    with messages() as logger, exit_statuses():
        shown = {key: _shown(key, setting, in_use) for key, setting in in_use.items()}
        if output == "json":
            values = {key: {"value": value, "from": in_use[key].origin} for key, value in shown.items()}
            shown_as = {"file": None if file is None else str(file), "settings": values}
            put(report_json(json.dumps(shown_as), ReportOptions(output="json")))
        else:
            put(f"config file  {escape(str(file or f'none (looked for {default_file(os.environ)})'))}")
            for key in SETTINGS:
                value = json.dumps(shown[key], ensure_ascii=False) if key in shown else "-"
                origin = f"   from {in_use[key].origin}" if key in shown else ""
                put(f"{key:<17}{escape(value + origin)}")
        known = {"PGTAIL_CONFIG", "PGTAIL_PURE", *map(variable, SETTINGS)}
        for name in sorted(name for name in os.environ if name.startswith("PGTAIL_") and name not in known):
            logger.info(f"{escape(name)} is not a setting of pgtail: it has no effect")


def _shown(key: str, setting: Setting, in_use: dict[str, Setting]) -> str | bool | int | list[str]:
    """The value of a setting, without passwords and masked values. Raises OptionError."""
    value = setting.value
    if key == "dsn":
        from pgtail.postgres.connection import without_secrets

        try:
            return without_secrets(str(value))
        except OptionError:
            return "(libpq cannot read it)"
    if key == "where" and "redact" in in_use and isinstance(value, list):
        columns = in_use["redact"].value
        redaction = Redaction(columns if isinstance(columns, list) else [])
        return [test.shown for text in value for test in tests_of(condition_of(text, redaction))]
    return value
