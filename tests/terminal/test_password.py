"""A password that is typed: not shown, and no request to stop is lost."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.tail import COMMAND
from tests.support.terminals import on_terminal

ASKS = [*COMMAND[:-1], "slot", "list", "host=127.0.0.1 port=1 dbname=x user=u", "-W"]
SIGNALS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <sys/select.h>
#include <termios.h>
#include <unistd.h>

static void once(int fd) {
    static int done;
    struct termios now;
    if (!done && tcgetattr(fd, &now) == 0 && !(now.c_lflag & ECHO)) {
        done = 1;
        raise(SIGINT);
    }
}

ssize_t read(int fd, void *buffer, size_t size) {
    once(fd);
    return ((ssize_t (*)(int, void *, size_t))dlsym(RTLD_NEXT, "read"))(fd, buffer, size);
}

int select(int count, fd_set *reads, fd_set *writes, fd_set *errors, struct timeval *timeout) {
    for (int fd = 0; reads && fd < count; fd++)
        if (FD_ISSET(fd, reads)) once(fd);
    return ((int (*)(int, fd_set *, fd_set *, fd_set *, struct timeval *))dlsym(RTLD_NEXT, "select"))(
        count, reads, writes, errors, timeout);
}
"""
"""Sends SIGINT right before the call that waits for the password, when Python looks for no signal any more."""


def test_a_request_to_stop_right_before_the_read_is_not_lost(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    source, library = tmp_path / "signals.c", tmp_path / "signals.so"
    source.write_text(SIGNALS)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    status, shown = on_terminal(ASKS, env={"LD_PRELOAD": str(library)})
    assert (status, shown) == (130, "Password for user u: \r\n")


@pytest.mark.parametrize(("typed", "status"), [("\x03", 130), ("secret\n", 3), ("sec\x04ret\n", 3), ("\x04", 3)])
def test_what_is_typed_is_not_shown(typed: str, status: int) -> None:
    found, shown = on_terminal(ASKS, until="Password", answer=typed)
    assert found == status
    assert shown.startswith("Password for user u: \r\n")
    assert "sec" not in shown
    assert "ret\r\n" not in shown
