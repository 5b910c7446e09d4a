"""The selection of a command: types, filter and masks from its options, and notes about them for people."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pgtail.changes.column_rules import as_written
from pgtail.changes.commit_range import ANYWHERE, MARGIN, CommitRange
from pgtail.changes.condition import PROPERTIES, Test
from pgtail.changes.filters import OPS, Filter
from pgtail.changes.redaction import Redaction
from pgtail.commands.options.common import FilterOptions
from pgtail.errors import OptionError
from pgtail.files.small import read_small
from pgtail.humanize import counted, did_you_mean, some_of
from pgtail.local_time import zone_text
from pgtail.log import logger
from pgtail.options import Option, options_of
from pgtail.outputs.fields import local_minute
from pgtail.pgoutput.scalars import Point, lsn_text, time_text
from pgtail.terminal.escape import escape

if TYPE_CHECKING:
    from pgtail.pipeline.pipeline import Seen


def filters() -> Iterator[tuple[str, Option]]:
    """The options that are arguments of a Filter, with the names of the arguments."""
    return ((name, one) for name, one in options_of(FilterOptions) if one.group == "filter")


def filter_arguments(
    options: FilterOptions, redaction: Redaction | None, until: Point | None = None, *, margin: int = MARGIN
) -> dict[str, Any]:
    """The keyword arguments of a Filter; `until` and `margin` are those of a CommitRange. Raises OptionError."""
    for op in options.ops:
        if op.lower() not in OPS:
            raise OptionError(f"--op {op}: expected one of {', '.join(OPS)}")
    check_range(options.since, until)
    return {
        **{name: getattr(options, name) for name, _ in filters()},
        "ops": [op.lower() for op in options.ops],
        "commits": CommitRange(options.since or ANYWHERE, until or ANYWHERE, margin),
        "redaction": redaction,
        "context": options.context is not None,
    }


def check_range(since: Point | None, until: Point | None) -> None:
    """Raises OptionError if nothing can be between them."""
    if since is None or until is None:
        return
    for low, high, text in ((since.lsn, until.lsn, lsn_text), (since.time, until.time, time_text)):
        if low is not None and high is not None and low > high:
            words = f"--since {text(low)} is later than --until {text(high)}: nothing is in between"
            raise OptionError(words.replace(".000000", ""))


def build_redaction(options: FilterOptions) -> Redaction | None:
    """The redaction that masks values, or None. Build it once for a run. Raises OptionError."""
    if not options.redact:
        if options.redact_hash:
            raise OptionError("--redact-hash needs --redact, which names the columns to mask")
        return None
    configured = options.always_redacted
    columns = options.redact[: len(options.redact) - len(configured)]  # a configuration's come last
    if not options.redact_hash:
        return Redaction(columns, None, configured, options.context)
    if options.redact_key_file is None:
        raise OptionError(
            "--redact-hash needs --redact-key-file FILE: without a key values could be guessed from their hashes;"
            " `head -c 32 /dev/urandom > FILE` makes one"
        )
    return Redaction(columns, _key(options.redact_key_file), configured, options.context)


def _key(file: str) -> bytes:
    try:
        return read_small(os.path.expanduser(file))
    except OSError as error:
        raise OptionError(f"--redact-key-file {file}: {error.strerror}") from error


def report_filter(filter_: Filter, level: int = logging.INFO) -> None:
    """At the end: filters that left nothing, could not be tested or name columns that did not occur.

    What may be a typing error is of this level.
    """
    if filter_.no_table_passed:
        names = [*filter_.left_out, *[name.partition(".")[2] for name in filter_.left_out]]
        meant = next(filter(None, [did_you_mean(glob, names) for glob in filter_.tables]), "")
        shown = some_of(sorted(filter_.left_out), 10)
        logger.log(level, escape(f"no selected table has a change: the changes are of {shown}{meant}"))
    if filter_.not_sent:
        rows = "1 row" if filter_.not_sent == 1 else f"{filter_.not_sent} rows"
        logger.info(
            f"--where could not be tested on {rows}: the value was not sent or cannot be compared; UNKNOWN in"
            " pgtail-filter(7) says what helps"
        )
    for column, test, meant in unknown_columns(filter_):
        logger.log(level, escape(f"no table had a column {column} (--where {test.shown}){meant}"))
    for text in filter_.notes:
        logger.info(escape(text))
    for name, table in filter_.shadowed.items():
        logger.info(escape(f'{name} in --where is not the column {name} of {table}, which is written "{name}"'))


def report_context(options: FilterOptions, seen: Seen) -> None:
    """At the end: a prefix of --context that no message had."""
    if options.context is not None and not seen.contexts:
        logger.info(escape(f"no transaction sent a message with the prefix {options.context} (--context)"))


def report_nothing_passed(seen: Seen, *, whole: bool = True) -> None:
    """Report at the end that a filter left nothing, and its input. Without `whole` a part was not read."""
    if not seen.nothing_passed:
        return
    if seen.transactions:
        text = f"0 of {counted(seen.transactions, 'transaction')} matched"
        if seen.times is not None:
            text += f"; {'the input' if whole else 'what was read'} covers {_span(*seen.times)}"
        logger.info(text)
    elif seen.past is not None:
        logger.info(f"0 transactions matched; the first one was committed later, at {_span(seen.past, seen.past)}")


def _span(first: int, last: int) -> str:
    """Two times in local time, without repeating their common parts: 2026-11-22 13:29 to 13:35+01."""
    start, end = local_minute(first), local_minute(last)
    day, _, clock = end.partition(" ")
    shown = clock if start.startswith(f"{day} ") else end
    return f"{end}{zone_text(last)}" if start == end else f"{start} to {shown}{zone_text(last)}"


def unknown_columns(filter_: Filter) -> Iterator[tuple[str, Test, str]]:
    """The columns in conditions that no table had, with their tests and `; did you mean ...`; none without tables."""
    if filter_.a_table_came and not filter_.no_table_passed:
        for column, test in filter_.columns_not_seen:
            yield column, test, did_you_mean(column, [*map(as_written, filter_.columns), *PROPERTIES])


def report_unmasked(redaction: Redaction | None, *, whole: bool = True) -> bool:
    """Report at the end the names in --redact that no table had. Returns whether one is of the command line.

    Without `whole` a part of the input was not read.
    """
    if redaction is None:
        return False
    missing = False
    for rule in redaction.unused:
        if rule.text in redaction.names:
            missing = True
            where = "" if whole else " in what was read"
            logger.warning(escape(f"--redact {rule.text} masked nothing{where}{rule.meant(redaction.tables)}"))
        else:
            logger.info(escape(f"no table had a column {rule.text} (--redact)"))
    return missing and whole
