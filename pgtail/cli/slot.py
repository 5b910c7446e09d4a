"""Floor 7, `pgtail slot`: the group of commands for replication slots; imports them when they are wanted."""

from __future__ import annotations

import click


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        from pgtail.cli.slot_commands import COMMANDS

        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        from pgtail.cli.slot_commands import COMMANDS

        return COMMANDS.get(cmd_name)


@click.group("slot", cls=_Commands)
def command() -> None:
    """List, create, drop, advance and copy replication slots.

    \b
    pgtail slot list shop           who reads which slot, what it holds back
    pgtail slot create audit shop   says which transaction it waits for
    pgtail slot copy audit audit_test shop
    pgtail slot drop audit_test shop
    """
