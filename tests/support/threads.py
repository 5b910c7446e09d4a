"""Work in other threads while a test does something else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def meanwhile(*work: Callable[[threading.Event], object]) -> Iterator[None]:
    """Run each in a thread of its own while the body runs; raises the first error at the end.

    Each gets the event that is set when the body ends, and ends then.
    """
    stop, errors = threading.Event(), list[BaseException]()

    def run(one: Callable[[threading.Event], object]) -> None:
        try:
            one(stop)
        except BaseException as error:  # noqa: BLE001 -- raised below
            errors.append(error)

    threads = [threading.Thread(target=run, args=[one]) for one in work]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    for error in errors:
        raise error
