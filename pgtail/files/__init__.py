"""Temporary files, atomic replacement, decompression, requests to stop, and the Sink protocol."""

from typing import Final

MAGIC: Final = b"\x1f\x8b"
"""How gzip data begin (RFC 1952)."""
