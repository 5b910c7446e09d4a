"""The options of the `pgtail spark` commands, in groups; imports click and nothing heavier."""

from __future__ import annotations

import click

from pgtail.cli.options.shared import F, in_order, items, verbose_option
from pgtail.cli.options.stream import positive_duration


def changes_options(function: F) -> F:
    """Which tables are written: `tables`."""
    return click.option(
        "-t",
        "--table",
        "tables",
        multiple=True,
        metavar="GLOB,...",
        callback=items,
        help="Only these tables: a glob on schema.table, or without a dot on the name alone. Repeatable.",
    )(function)


def compact_option(function: F) -> F:
    """`compact`."""
    return click.option("--compact", is_flag=True, help="Afterwards merge small files into large ones.")(function)


def state_options(function: F) -> F:
    """What state and history contain: `until`, `allow_gap`, `retain`."""
    return in_order(
        [
            click.option(
                "--until",
                metavar="LSN|TIME",
                help="Leave out what was committed later. A time is ISO 8601, in UTC unless it names a zone.",
            ),
            click.option(
                "--allow-gap",
                is_flag=True,
                help="Continue where a segment is missing, and record the gap: its changes are then wrong or absent.",
            ),
            click.option(
                "--retain",
                type=positive_duration,
                default="1h",
                show_default=True,
                metavar="TIME",
                help="Keep replaced files of state and history for this long: for readers, and for time travel.",
            ),
        ]
    )(function)


def watch_options(function: F) -> F:
    """Whether to follow growing captures: `watch`, `every`."""
    return in_order(
        [
            click.option("--watch", is_flag=True, help="Follow what is recorded, until Ctrl-C."),
            click.option(
                "--every",
                type=positive_duration,
                default="1m",
                show_default=True,
                metavar="TIME",
                help="With --watch: how often to check for closed segments (30s, 1m, 2h).",
            ),
        ]
    )(function)


def spark_options(function: F) -> F:
    """Where Spark runs, and its settings: `master`, `conf`, `verbose`."""
    return in_order(
        [
            click.option(
                "--master",
                show_default="local[*]; under spark-submit its master",
                metavar="URL",
                help="Where Spark runs: this machine's cores, or a cluster (yarn, spark://host:7077, k8s://...).",
            ),
            click.option(
                "--conf",
                multiple=True,
                metavar="NAME=VALUE",
                help="A Spark setting, such as spark.driver.memory=8g. Repeatable.",
            ),
            verbose_option,
        ]
    )(function)
