"""Floor 7, where the program begins, installed or as `python -m pgtail`; imports nothing until Ctrl-C is heeded."""

INTERRUPTED = 130
"""The exit status after Ctrl-C where nothing had begun yet, as shells have it."""


def main() -> None:
    """The command line: as pgtail.cli.main, but Ctrl-C is quiet also while that, and click, are being loaded."""
    try:
        from pgtail.cli import main as commands
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    commands(prog_name="pgtail")
