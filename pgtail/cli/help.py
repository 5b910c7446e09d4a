"""`pgtail help`: the help of a command."""

from __future__ import annotations

import click

from pgtail.cli.command import Command


@click.command("help", cls=Command)
@click.argument("words", nargs=-1, metavar="[COMMAND]... [all|GROUP]")
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a command.

    The same as --help after the command: without more the options used most, with all every option, with the name of
    a group the options of that group.

    \b
    pgtail help stream
    pgtail help stream all
    pgtail help decode filter
    pgtail help slot create
    """
    from pgtail.cli import main

    found: click.Command | None = main
    names = 0
    while isinstance(found, click.Group) and names < len(words):
        found = found.get_command(ctx, words[names])
        names += 1
    more = [] if found is None else ["--help"]  # a command that does not exist is an error
    main([*words[:names], *more, *words[names:]], prog_name="pgtail")
