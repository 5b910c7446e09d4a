"""The --encoding of a dump or of a server: a callback that commands share."""

from __future__ import annotations

import click


def encoding_name(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Python's name of an encoding that is given by it or by PostgreSQL's. Raises BadParameter."""
    if value is None or value == "utf-8":
        return value
    from pgtail.values.encodings import of_postgresql

    try:
        return of_postgresql(value)
    except LookupError:
        raise click.BadParameter(
            f"{value!r} is no encoding of PostgreSQL that Python has; examples are UTF8, LATIN1, WIN1252", ctx, param
        ) from None
