"""Floor 7, `pgtail config`: the settings in force and where each comes from; shows no password."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pgtail.cli.settings import Setting


@click.command("config")
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

    A setting is the default of the option of the same name: in the file pgtail/config.toml in $XDG_CONFIG_HOME or
    ~/.config (PGTAIL_CONFIG names another one, empty none), or in a variable such as PGTAIL_SLOT, which wins over the
    file. A flag wins over both; --redact adds to them. Passwords are never shown.

    \b
    pgtail config
    PGTAIL_CONFIG= pgtail config -o json
    """
    import json

    from pgtail.cli.settings import SETTINGS, config_file, settings, usual_file, variable
    from pgtail.cli.sinks import put
    from pgtail.cli.standard import exit_statuses, say
    from pgtail.outputs.escape import escape

    file = config_file(os.environ)
    found = settings(ctx)
    with exit_statuses():
        shown = {key: _shown(key, setting, found) for key, setting in found.items()}
        if output == "json":
            values = {key: {"value": value, "from": found[key].origin} for key, value in shown.items()}
            told = {"file": None if file is None else str(file), "settings": values}
            put(json.dumps(told))
        else:
            put(f"config file  {escape(str(file or f'none (looked for {usual_file(os.environ)})'))}")
            for key in SETTINGS:
                value = _toml(shown[key]) if key in shown else "-"
                origin = f"   from {found[key].origin}" if key in shown else ""
                put(f"{key:<17}{escape(value + origin)}")
    known = {"PGTAIL_CONFIG", "PGTAIL_PURE", *map(variable, SETTINGS)}
    for name in sorted(name for name in os.environ if name.startswith("PGTAIL_") and name not in known):
        say(f"note: nothing is called {escape(name)}: it has no effect")


def _shown(key: str, setting: Setting, found: dict[str, Setting]) -> str | bool | int | list[str]:
    """A setting's value without what nobody is to see. Raises OptionError."""
    from pgtail.errors import OptionError

    value = setting.value
    if key == "dsn":
        from pgtail.server.connection import without_secrets

        try:
            return without_secrets(str(value))
        except OptionError:
            return "(libpq cannot read it)"
    if key == "where" and "redact" in found and isinstance(value, list):
        from pgtail.filters import Where
        from pgtail.redaction import Redaction

        columns = found["redact"].value
        redaction = Redaction(columns if isinstance(columns, list) else [])
        return [Where(text, redaction).shown for text in value]
    return value


def _toml(value: str | bool | int | list[str]) -> str:
    """A value as it may stand in the file."""
    import json

    return json.dumps(value, ensure_ascii=False)
