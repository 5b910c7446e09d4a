"""The library, which `pgtail` offers under its own name: see pgtail(3)."""

from __future__ import annotations

import logging

from pgtail.log import logger

logger.addHandler(logging.NullHandler())  # without a handler, Python writes warnings to standard error
