"""The entry point, installed or as `python -m pgtail`; handles requests to stop before it imports anything else."""

import contextlib
import gc
import signal
import sys


def main() -> None:
    """Run pgtail.cli.main; a signal that arrives while click is being imported ends the process quietly.

    The program that .ci/environment writes blocks SIGINT before Python imports anything: from here on it is handled.
    """
    try:
        from pgtail.files.stopping import after_echo, exit_on_stop_request, ignore_stop_requests

        exit_on_stop_request()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # 128 + SIGINT, as in shells
    from pgtail.cli import main as commands

    try:
        commands(prog_name="pgtail")
    finally:
        ignore_stop_requests()
        with contextlib.suppress(OSError, ValueError, AttributeError):  # it was closed, also before the start
            sys.stderr.write(after_echo(sys.stderr.isatty()))
        gc.freeze()  # Python looks once more at all objects before it exits


if __name__ == "__main__":
    main()
