"""`pgtail completion`: the completion scripts of bash, zsh and fish, and how each shell asks for completions.

They replace click's own: words that contain = and : are completed in each shell, zsh works without compinit, and fish
takes values with commas.
"""

from __future__ import annotations

import os
from typing import Any, Final

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ZshComplete,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

from pgtail.cli import main
from pgtail.cli.command import Command
from pgtail.commands.console.messages import exit_statuses
from pgtail.commands.output.file_sink import put

_LINE: Final = "COMP_WORDS"
"""The variable with the command line up to the cursor, in which all three scripts pass it."""

_BASH: Final = """\
%(complete_func)s() {
    local type value response files=
    response=$(COMP_WORDS="${COMP_LINE:0:COMP_POINT}" %(complete_var)s=bash_complete "$1" 2>/dev/null)
    COMPREPLY=()
    while IFS=',' read -r type value; do
        case $type in
            plain) COMPREPLY+=("$value") ;;
            file) files=default ;;
            dir) files=dirnames ;;
        esac
    done <<< "$response"
    if [[ -n $files && ${#COMPREPLY[@]} -gt 0 ]]; then
        compopt -o filenames
        while IFS= read -r value; do COMPREPLY+=("$value"); done < <(compgen -f -- "$2")
    elif [[ -n $files ]]; then
        compopt -o $files
    fi
}

complete -o nosort -F %(complete_func)s %(prog_name)s 2>/dev/null || complete -F %(complete_func)s %(prog_name)s
"""
_ZSH_NEEDS: Final = """\
if [[ $zsh_eval_context[-1] != loadautofunc ]] && (( ! $+functions[compdef] )); then
    autoload -Uz compinit && compinit
fi
"""


class _Bash(BashComplete):
    """Splits the line itself: bash's COMP_WORDS are cut at = and :, and it replaces only what comes after them.

    In quotes it replaces the whole word.
    """

    source_template = _BASH

    @staticmethod
    def _check_version() -> None:
        """The script works with any bash that is in use."""

    def get_completion_args(self) -> tuple[list[str], str]:
        words, word = _line()
        return words, word

    def format_completion(self, item: CompletionItem[Any]) -> str:
        _, word = _line()
        quoted = os.environ[_LINE].removesuffix(word).endswith(("'", '"'))
        before = "" if quoted else word[: max(word.rfind("="), word.rfind(":")) + 1]
        return f"{item.type},{str(item.value).removeprefix(before)}"


def _line() -> tuple[list[str], str]:
    """The words before the cursor without the command, and the incomplete last one."""
    line = os.environ[_LINE]
    words = split_arg_string(line)[1:]
    return (words, "") if not words or line[-1:].isspace() else (words[:-1], words[-1])


def _whole(item: CompletionItem[Any], word: str) -> CompletionItem[Any]:
    """The item for a shell that replaces the whole word, also if that is --option=value."""
    option, equals, _ = word.partition("=")
    if item.type != "plain" or not (equals and option.startswith("-")):
        return item
    return CompletionItem(f"{option}={item.value}", help=item.help)


class _Zsh(ZshComplete):
    def format_completion(self, item: CompletionItem[Any]) -> str:
        return super().format_completion(_whole(item, self.get_completion_args()[1]))

    def source(self) -> str:
        head, _, rest = super().source().partition("\n")  # the first line is for compinit
        return f"{head}\n{_ZSH_NEEDS}{rest}"


class _Fish(FishComplete):
    def format_completion(self, item: CompletionItem[Any]) -> str:
        return super().format_completion(_whole(item, self.get_completion_args()[1]))

    def source(self) -> str:
        return super().source().replace('string split ","', 'string split -m 1 ","')


for _shell in (_Bash, _Zsh, _Fish):
    add_completion_class(_shell)


@click.command("completion", cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    eval "$(pgtail completion bash)"            in ~/.bashrc
    eval "$(pgtail completion zsh)"             in ~/.zshrc
    pgtail completion fish | source             in ~/.config/fish/config.fish
    """
    completion = get_completion_class(shell)
    assert completion is not None  # click has all three
    with exit_statuses():
        put(completion(main, {}, "pgtail", "_PGTAIL_COMPLETE").source())
