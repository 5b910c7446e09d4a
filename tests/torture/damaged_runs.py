"""Damaged runs of rows through a build of pgtail.native._scanner that checks every access.

Python's own allocator must be off (PYTHONMALLOC=malloc), so that a buffer ends where
its bytes end.
"""

from __future__ import annotations

import random
import struct
import sys
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, get_args
from zlib import crc32

from pgtail.values import ValueKind
from tests.support.sanitized import load, run_sanitized

if TYPE_CHECKING:  # its servers would be looked for under AddressSanitizer
    from tests.torture.bench import Bench

MUTATIONS = 600


class Discard:
    """A sink that keeps nothing."""

    def write(self, data: bytes, /) -> None:
        pass


def trial(bench: Bench, choose: random.Random) -> str:
    """Damage rows of all types in all ways."""
    mutations = bench.size(600, 100)
    words = [str(bench.sanitized), str(choose.randrange(1 << 30)), str(mutations)]
    rows = int(run_sanitized("tests.torture.damaged_runs", *words))
    assert rows > 150 * mutations, rows
    return f"{rows} rows"


def main(path: str, seed: int) -> None:
    """Print how many rows were read."""
    module = load(path)
    from pgtail.pgoutput.frames import COPY_DATA, LENGTHS, SEPARATED
    from tests.support.encode import begin, commit, frame, lengths, recvlogical
    from tests.support.render import write_slice
    from tests.support.typed_rows import TYPES, one_of_each

    choose = random.Random(seed)
    taken = 0
    for types in (TYPES[::3], TYPES[1::3], TYPES[2::3]):
        table, rows = one_of_each(types)
        messages = [begin(), *rows, commit()]
        buffers = {
            SEPARATED: recvlogical(*messages),
            LENGTHS: lengths(*messages, lsn=1 << 40),
            COPY_DATA: b"".join(b"d" + struct.pack(">I", 4 + len(f)) + f for f in map(frame, messages)),
        }
        _, kept = one_of_each(types, xid=7)
        for data in (lengths(*kept), recvlogical(*kept)):
            framing = LENGTHS if data[0] == 0 else SEPARATED
            assert kept_until(module, data, framing) == len(data)
            for _ in range(MUTATIONS // 9):
                damaged = bytearray(data)
                damaged[choose.randrange(len(data))] = choose.choice((0, 0xFF, 0x7F, choose.randrange(256)))
                end = choose.randrange(len(data))
                taken += kept_until(module, bytes(damaged[:end]), framing)
        made = [*outputs(table)]
        for framing, data in buffers.items():
            taken += recorded(module, choose, data, framing)
            assert write_slice(*made[0], data, table, framing) == len(data), "none of this is unusual"
            for output in made:
                for end in choose.sample(range(len(data)), min(len(data), MUTATIONS // 10)):
                    taken += write_slice(*output, data[:end], table, framing)
                for _ in range(MUTATIONS // 90):
                    damaged = bytearray(data)
                    for _ in range(choose.randrange(1, 6)):
                        damaged[choose.randrange(len(data))] = choose.choice((0, 0xFF, 0x7F, choose.randrange(256)))
                    taken += write_slice(*output, bytes(damaged), table, framing)
    print(taken + columns(module, choose) + copied(module, choose))


def kept_until(module: Any, data: bytes, framing: int) -> int:
    """Where the rows end that are kept of a streamed transaction."""
    runs = module.runs_of_rows(module.index(data, 0, len(data), framing, True), len(data))
    stop: int = runs[-1][0] if runs else 0
    return stop


def recorded(module: Any, choose: random.Random, data: bytes, framing: int) -> int:
    """The same for what is copied for a capture."""
    from pgtail.capture.recorder import NO_LIMITS

    def copied(found: bytes, end: int) -> int:
        rows: int = 0
        for dump in (False, True):
            for inside in (False, True):
                batch = module.index(found, 0, end, framing)
                messages = module.copied_messages(batch, 0, dump, inside, 1 << 20, *NO_LIMITS)
                rows += 0 if messages is None else messages.rows
        return rows

    taken = copied(data, len(data))
    assert taken, "none of this is unusual"
    for number in range(MUTATIONS // 9):
        damaged = bytearray(data)
        damaged[choose.randrange(len(data))] = choose.choice((0, 0xFF, 0x7F, choose.randrange(256)))
        end = choose.randrange(len(data)) if number % 2 else len(data)
        taken += copied(bytes(damaged[:end]), end)
    return taken


def outputs(table: Any) -> Iterator[tuple[Any, Any]]:
    """Each output and statistics, with and without a filter."""
    from pgtail.changes.filters import Filter
    from pgtail.outputs import OutputOptions, open_output
    from pgtail.stats.collect import Statistics
    from tests.support.same import OUTPUTS

    conditions = [f"{table.columns[0].name} is not null", " or ".join(every_test(table))]
    for filter_ in (None, *[Filter(where=[condition]) for condition in conditions], Filter(ops=["update"])):
        for output, options in OUTPUTS:
            made = open_output(output, Discard(), OutputOptions(open_file=lambda *_: Discard(), **options))
            if made.takes_slices:
                yield made, filter_
        yield Statistics(), filter_


def every_test(table: Any) -> Iterator[str]:
    """Tests of every column that walk through texts; none of them is true as a rule."""
    for column in table.columns:
        yield f"{column.name} like '%1_%\u00fc%'"
        yield f"{column.name} ilike '%nosuch'"
        yield f"old.{column.name} is distinct from new.{column.name} and changed({column.name})"
        if column.codec.kind is ValueKind.NUMBER:
            yield f"{column.name} < -1234567890.5"


def columns(module: Any, choose: random.Random) -> int:
    """The same for the builder of Arrow columns: text cells, NULL, unchanged, every kind of tuple."""
    from pgtail.changes.relations import Column, Relation
    from pgtail.pgoutput.frames import COPY_DATA
    from pgtail.values import Types
    from tests.support.encode import UNCHANGED, begin, commit, delete, frame, insert, update

    text, taken = ["7", "Gr\u00fc\u00dfe \U0001f600" * 3, None], 0
    rows = [insert(*text), update(["8", UNCHANGED, "x"]), update(text, ["7", None, None]), update(text, text, "O")]
    messages = [begin(), *rows, delete("7", None, None), delete(*text, kind="O"), commit(), begin(8), *rows, commit()]
    data = b"".join(b"d" + struct.pack(">I", 4 + len(one)) + one for one in map(frame, messages))
    types = Types()
    names = ["id", "\u00fcber", "v"]
    columns = tuple([Column(name, 25, -1, name == "id", "text", types.codec(25)) for name in names])
    table, builder = Relation(100, "public", "t", "default", columns), module.ColumnBuilder()

    def add(found: bytes) -> int:
        slice_ = module.index(found, 0, len(found), COPY_DATA).slice(0, {100: table}, None)
        if slice_ is None:
            return 0
        builder.enter(slice_, None, 0, 0)
        while builder.add_rows() is not None:
            pass
        return int(slice_.stop)

    assert add(data) == len(data), "none of this is unusual"
    assert len(builder.take_buffers()["op"]) == 10
    for number in range(MUTATIONS):
        damaged = bytearray(data)
        for _ in range(choose.randrange(1, 4)):
            damaged[choose.randrange(len(data))] = choose.choice((0, 0xFF, 0x7F, choose.randrange(256)))
        end = choose.randrange(len(data)) if number % 2 else len(data)
        taken += add(bytes(damaged[:end]))
        builder.take_buffers()
    return taken


def copied(module: Any, choose: random.Random) -> int:
    """The same for rows of COPY, in its text and in its binary form."""
    from pgtail.pgoutput.frames import COPY_DATA, LENGTHS
    from tests.support.libpq import CopyOut

    text = b"7\t\\N\ta\\tb\\\\\\n" + b"x" * 40 + b"\t\t\\N\n"
    cells = [struct.pack(">I", len(one)) + one for one in (b"\0\0\0\7", b"", b"x" * 40, b"y")]
    binary = struct.pack(">H", 5) + b"".join(cells) + b"\xff\xff\xff\xff"
    header = b"PGCOPY\n\xff\r\n\0" + bytes(8)
    taken = 0
    for row, kinds in ((text, None), (binary, b"bbtbb"), (header + binary, b"bbtbb"), (header + b"\xff\xff", b"bbtbb")):
        for number in range(MUTATIONS):
            damaged = bytearray(row)
            if number:
                damaged[choose.randrange(len(row))] = choose.choice((0, 9, 10, 92, 0xFF, 0x7F, choose.randrange(256)))
            end = choose.randrange(1, len(row)) if number % 2 else len(row)
            source = CopyOut([bytes(damaged[:end])])
            form = b"head", kinds, 5, choose.choice((LENGTHS, COPY_DATA))
            try:
                taken += len(module.copy_inserts(source.functions, 0, 0, 0, *form, 1 << 20)[0])
            except ValueError:
                assert number, "none of this is unusual"
    return taken


def encoded(module: Any) -> int:
    """Texts of every length around the blocks that are compared at once, which end where their memory ends.

    At each place they have a character that is escaped, quoted, beyond ASCII or no UTF-8. Returns a checksum of all
    results.
    """
    from pgtail.native.plan import EncoderName

    specials = [text.encode() for text in ('"', "\\", "'", ",", ".", "\n", "\x7f", "é", "😀")]
    checksum = 0
    for name in get_args(EncoderName):
        for filling in "x7" if name else "":
            for size in range(36):
                for place in range(size):
                    for special in (*specials, b"\xff"):
                        text = (filling * place).encode() + special + (filling * (size - place - 1)).encode()
                        found = module.encode(name, 1, array("B", text[:size]))
                        checksum = crc32(b"-" if found is None else found, checksum)
    return checksum


if __name__ == "__main__":
    MUTATIONS = int(sys.argv[3])
    main(sys.argv[1], int(sys.argv[2]))
