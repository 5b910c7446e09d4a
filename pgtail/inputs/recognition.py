"""Finds the form of a source in its first bytes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from pgtail.inputs.base import Input
from pgtail.inputs.binary.unframed import Recvlogical
from pgtail.inputs.source.window import LARGE, Window
from pgtail.pgoutput.decoder import Decoder

_EVERY_BYTE: Final = 64 * 1024
"""Bytes up to which every new piece of a source is examined; beyond, larger and larger pieces."""


def recognise(window: Window, decoder: Decoder, forms: Collection[type[Input]]) -> type[Input] | None:
    """The form of a source, as soon as enough of it was read; None if it has none of these."""
    window.more()
    while True:
        head, final = window.buf, window.final
        unsure: type[Input] | None = None
        for form in forms:
            verdict = form.sniff(head, decoder, final=final)
            if verdict and (unsure is None or final or len(head) > _EVERY_BYTE):
                return form
            if verdict is None and unsure is None:
                unsure = form
        if final and not head and window.source.damage is None:
            return Recvlogical
        if final or len(head) > LARGE:
            break
        window.more(1 if len(head) < _EVERY_BYTE else len(head) // 8)
    if unsure is not None and not final:
        return unsure
    for form in forms:
        if form.search(head, decoder, final=final):
            return form
    return None
