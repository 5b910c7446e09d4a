"""Starts a program and prints what it cost: exit status, wall and CPU seconds, peak memory in the system's unit.

Run as a script by a Python without anything else in it: a new process counts the memory of the one that started it as
its own peak, so that one has to be small.
"""

from __future__ import annotations

import os
import sys
import time


def spawn(output: str, command: list[str]) -> None:
    started = time.perf_counter()
    to_output = (os.POSIX_SPAWN_OPEN, 1, output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    pid = os.posix_spawnp(command[0], command, os.environ, file_actions=[to_output])
    _, status, usage = os.wait4(pid, 0)
    wall = time.perf_counter() - started
    print(os.waitstatus_to_exitcode(status), wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss)


if __name__ == "__main__":
    spawn(sys.argv[1], sys.argv[2:])
