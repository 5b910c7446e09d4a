"""A limit: what Python takes to find where each frame starts and ends, and nothing else. Run as a script."""

from __future__ import annotations

import sys

PIECE = 1 << 18


def walk(path: str) -> int:
    """Pass over every frame of a file; returns how many there are."""
    frames, rest = 0, b""
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(PIECE):
            piece = rest + piece
            start, size = 0, len(piece)
            while start + 4 <= size:
                end = start + 4 + int.from_bytes(piece[start : start + 4], "big")
                if end > size:
                    break
                frames += 1
                start = end
            rest = piece[start:]
    return frames


if __name__ == "__main__":
    print(walk(sys.argv[1]))
