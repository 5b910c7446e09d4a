"""The entry point, installed or as `python -m pgtail`; handles requests to stop before it imports anything else."""

import contextlib
import gc
import sys


def main() -> None:
    """Run pgtail.cli.main."""
    try:
        from pgtail.files.stopping import after_echo, handle_requests, ignore_requests

        handle_requests()
        from pgtail.cli import main as commands

        try:
            commands(prog_name="pgtail")
        finally:
            ignore_requests()
            gc.freeze()  # Python would look for garbage among all objects before it exits
            with contextlib.suppress(OSError, ValueError, AttributeError):  # it was closed, also before the start
                sys.stderr.write(after_echo(sys.stderr.isatty()))
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # 128 + SIGINT, as in shells


if __name__ == "__main__":
    main()
