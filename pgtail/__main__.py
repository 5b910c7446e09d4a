"""The entry point, installed or as `python -m pgtail`; handles requests to stop before it imports anything else."""

import contextlib
import sys


def main() -> None:
    """Run pgtail.cli.main; a signal that arrives while it is imported ends the process quietly."""
    from pgtail.files.stopping import after_echo, handle_requests, ignore_requests, status_after

    try:
        handle_requests()
        from pgtail.cli import main as commands

        commands(prog_name="pgtail")
    except KeyboardInterrupt as stopped:
        raise SystemExit(status_after(stopped)) from None
    finally:
        ignore_requests()
        with contextlib.suppress(OSError, ValueError, AttributeError):  # it was closed, also before the start
            sys.stderr.write(after_echo(sys.stderr.isatty()))


if __name__ == "__main__":
    main()
