"""`pgtail completion`: the script with which a shell completes pgtail's commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from pgtail.cli.command import Command


@click.command("completion", cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    eval "$(pgtail completion bash)"            in ~/.bashrc
    eval "$(pgtail completion zsh)"             in ~/.zshrc
    pgtail completion fish | source             in ~/.config/fish/config.fish
    """
    from pgtail.cli import main, shells  # noqa: F401 -- it registers the scripts
    from pgtail.commands.sinks import put
    from pgtail.commands.stderr import exit_statuses

    completion = get_completion_class(shell)
    assert completion is not None  # click has all three
    with exit_statuses():
        put(completion(main, {}, "pgtail", "_PGTAIL_COMPLETE").source())
