"""The logger of all messages, and levels beside those of `logging`: the command line decides what is shown, and how.

ERROR and WARNING are always shown, INFO is a note, which -q leaves out, and DEBUG is shown with -v.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, Final

DAMAGE, TROUBLE, OUTCOME, SUMMARY, DETAIL, TRACE = 35, 31, 25, 19, 15, 5
_OWN = {DAMAGE: "DAMAGE", TROUBLE: "TROUBLE", OUTCOME: "OUTCOME", SUMMARY: "SUMMARY", DETAIL: "DETAIL", TRACE: "TRACE"}
for _level, _name in _OWN.items():
    logging.addLevelName(_level, _name)

logger: Final = logging.getLogger("pgtail")
log_damage = partial(logger.log, DAMAGE)  # of an input or a capture, which is passed over; always shown
log_trouble = partial(logger.log, TROUBLE)  # of a service, which tries again; always shown, a warning for programs
log_outcome = partial(logger.log, OUTCOME)  # what a command did or waits for; always shown
log_summary = partial(logger.log, SUMMARY)  # what nobody needs to act on; not with -q
log_detail = partial(logger.log, DETAIL)  # on a terminal, and with -v
log_trace = partial(logger.log, TRACE)  # a line of the trace, with -vv


def event(name: str, /, **fields: object) -> dict[str, Any]:
    """The `extra` of a message: the name of what happened, and its fields, for --log-format json."""
    return {"event": name, "fields": fields}
