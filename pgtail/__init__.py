"""pgtail: tail, decode and inspect PostgreSQL logical replication.

    import pgtail
    for transaction in pgtail.read("changes.bin", tables=["orders"]):
        for change in transaction:
            print(change.op, change.key, change.new)

What else there is, see pgtail(3). This module holds the version, how pgtail is built, and a glossary.

HOW IT IS BUILT

Data flows one way: bytes -> messages -> change events -> text. A package imports only from packages below it in this
list; the import-linter contract in pyproject.toml enforces it.

    cli           the command line, made by click from the options that commands declare
    api           the library, whose names this module has; as cli, it makes its arguments from these options
    commands      what each command does, and its options; no click
    spark         captures to Delta tables on Spark; the only importer of pyspark and deltalake
    arrow         changes to typed Arrow columns, and the fold of changes to rows
    demo          the embedded server and its workload
    doctor        one module for each family of checks
    reading       files and captures to the pipeline, for commands and the library
    replication   following a slot: plan, loop, threads, feedback, reconnecting
    postgres      connections, catalog queries, slots, the walsender session; the only importer of psycopg
    pipeline      slices or decoded messages, assembler, filter, output: in order, in bounded memory
    stats         what `pgtail stats` shows
    hexview       what `pgtail inspect` shows
    outputs       events to text: a module or a folder for each format
    inputs        files and pipes to messages
    capture       the .pgcap format: reader, writer, recorder, recovery
    service       what a service knows of itself, and systemd's protocol
    terminal      escaping, styles, layout, keys
    changes       messages to change events: relations, assembler, streamed transactions, filters, redaction
    native        row plans, and compiled code: core (index), values, rows (slices, and what is made of them)
    values        one cell to one value
    pgoutput      the protocol: bytes to messages; opens no file or socket, reads no clock
    storage       paths and URIs: list, read, conditional put; the only importer of obstore and pyarrow.fs
    files         requests to stop, gzip, the Sink protocol
    options       how options are declared, as fields of records
    errors, humanize, local_time, log, _orjson

There are two ways from bytes to text, and tests compare them, byte by byte:

    bytes -> input -> index -> slice -> assembler -> old values, filter -> Writer -> text, thousands of rows at a time
                               |  ^                                          |
                               v  |                                          v
                               decoder -> assembler -> old values, filter -> row plans, one message at a time

    input      finds where messages start: a dump, a capture, packets, a live session
    index()    compiled: walks the messages of a buffer once, checks every length, and returns a Batch: arrays of
               transactions, rows and cells. It knows no table and nothing of the messages before
    slice      the rows of a batch up to the next message that is none, and up to what does not fit the tables or the
               open transaction: the decoder gets the message there, and the next slice begins after it
    Stop       cuts a slice where reading ends; -n counts shown transactions, so it cuts once more after the filter
    old values fill in what the server did not send of old rows
    filter     marks the rows that are shown; a transaction of which none is shown is not mentioned
    assembler  knows the tables and what transaction is open; holds streamed ones back until they are committed
    Writer     compiled: executes the row plans of an output. A row that it cannot write exactly goes to the output
               alone, as it is: numbered, filled in and selected
    decoder    handles every message, and explains every error
    row plan   how a format writes the rows of one table and operation: texts, fields of the transaction, cells

Everything after index() is a function of a slice: text here, counts for `pgtail stats`, columns for Arrow and Spark,
ranges of bytes for a capture and for streamed transactions. Without compiled code the decoder does all the work, with
the same output. It describes each message once, with the field names of the PostgreSQL manual; the same description
draws it for `pgtail inspect`. Neither way knows a format: an output makes row plans (native/plan.py has an example),
once for each version of a table; Writer and outputs/executor.py execute them.

Reading bytes has three outcomes: a message, Truncated (more is needed) or Malformed (never valid).

To add...
    an output format: a module of plans in outputs/, a line in OUTPUTS of its __init__.py (and fields in OutputOptions
                      if it has options of its own), a test in tests/outputs/; a conversion of values that compiled
                      code should do is a function in native/values/encode.pyx
    an input form:    a module in inputs/, a line in INPUTS of its __init__.py, and a line in FORMS of
                      tests/support/forms.py, with which the tests of tests/inputs/ cover it
    a message:        its class in pgoutput/, its lines in kinds.py, its step in changes/assembler.py, and an example in
                      tests/support/golden_messages.py
    an option:        a field of a class in commands/options/ (or OutputOptions, Request or Wanted), its use where
                      the class is read, and a test; a filter is also an argument of Filter, with the same name, and
                      one of decode an argument of pgtail.read() (api/arguments.py)
    a type of values: an entry in TYPES of its module in values/ (a new module is named in values/__init__.py), a test
                      in tests/values/
    a metric:         a line in commands/service/metrics.py, its value in service/progress.py, and its entry in the page
    a doctor check:   a function and its name in CHECKS of the family's module in doctor/, and a test
A new format also needs its entry in man/parts/; `make man` writes the pages, with all options, and
tests/end_to_end/test_docs.py names what is undocumented.

GLOSSARY

abort               the rollback of a streamed transaction, or of one of its subtransactions
acknowledge         report an LSN as flushed; the server may then discard what is before it
assembler           groups messages into transactions and resolves their tables
backlog             what a slot holds when a reader connects
batch               the messages of a part of a buffer, as arrays of transactions, rows and cells
capture             a directory of segments that `pgtail record` wrote
cell                one column of a tuple: a value, NULL, unchanged TOAST, or outside the replica identity
change event        a row change, truncate, logical message or outcome, as an output receives it
confirmed_flush_lsn a slot's position: transactions that committed before it are not sent again
end LSN             the position after a commit record, from which to resume; `commit_lsn` is the commit's own
executor            writes decoded rows by row plans, in Python
flush               in a status update: the LSN up to which the client has stored what it received
fork                reading a temporary copy of a slot that is in use
frame               what surrounds a message in a source: CopyData, XLogData, a length or a newline
gap                 a range of LSNs that a capture does not have
keepalive           the walsender's message without data: its position, and whether it wants a reply
logical message     the content of pg_logical_emit_message()
LSN                 log sequence number: a position in the WAL, written as 0/1949A30
message             one pgoutput message: Begin, Relation, Insert, ...
ordinal             the number of a message within its transaction, from 1
outcome             the Commit Prepared or Rollback Prepared of a prepared transaction
pgoutput            PostgreSQL's built-in output plugin for logical decoding, and its protocol
prepared            of a transaction: after PREPARE TRANSACTION, before its outcome
publication         the server's selection of tables and operations to send
relation            a table's description as the server sends it (Relation message); it may change in a stream
replica identity    the columns of the old row that updates and deletes carry: default, index, full or nothing
row plan            how a format writes the rows of one shape: a list of pieces that Writer and executor both execute
segment             a file of a capture; it decodes alone, and never changes once it is closed
seq                 the number of a row change within its transaction, from 1, before any filter
slice               the rows of a batch that follow one another in the stream, with their tables
slot                the server's memory of a consumer's position; it holds back WAL
snapshot            the rows of a table at a position of the stream: Inserts between a Begin with xid 0 and its Commit
spill               moving what waits for a slow output from memory to a private temporary file
streamed            of a transaction: sent in blocks before its commit or rollback is known
subtransaction      a savepoint's part of a transaction, with an xid of its own
TOAST, unchanged    a large value that an update did not change; the server does not send it
tuple               the cells of one row in a message
undecoded           of a column: its value could not be read as its type, and is shown as text or bytes
walsender           the server process that decodes the WAL and sends the messages
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pgtail.api.arrow import read_arrow, table_at
    from pgtail.api.expect import Expected, NotAsExpected, expect
    from pgtail.api.follow import Stream, follow
    from pgtail.api.read import read
    from pgtail.api.records import (
        NOT_SENT,
        Change,
        Lsn,
        Message,
        Transaction,
        Transactions,
        Truncate,
    )
    from pgtail.api.values import Text
    from pgtail.changes.relations import Column, Relation
    from pgtail.errors import (
        AssemblyError,
        DecodeError,
        InputError,
        Malformed,
        OptionError,
        OutputError,
        PgtailError,
        ServerError,
        Truncated,
        UndecodedError,
    )
    from pgtail.pgoutput.cells import UNCHANGED
    from pgtail.postgres.errors import Unreachable

__version__ = "0.1.0"
__all__ = [
    "NOT_SENT",
    "UNCHANGED",
    "AssemblyError",
    "Change",
    "Column",
    "DecodeError",
    "Expected",
    "InputError",
    "Lsn",
    "Malformed",
    "Message",
    "NotAsExpected",
    "OptionError",
    "OutputError",
    "PgtailError",
    "Relation",
    "ServerError",
    "Stream",
    "Text",
    "Transaction",
    "Transactions",
    "Truncate",
    "Truncated",
    "UndecodedError",
    "Unreachable",
    "__version__",
    "expect",
    "follow",
    "read",
    "read_arrow",
    "table_at",
]

_MODULES = (
    *("errors", "pgoutput.cells", "changes.relations", "api.values", "api.records", "api.read", "api.arrow"),
    *("postgres.errors", "api.follow", "api.expect"),  # last: they import the driver
)

if not TYPE_CHECKING:  # they would take every name for one that exists

    def __getattr__(name: str) -> Any:
        """The library is imported when a name of it is used: the command line does not need it."""
        if name in __all__:
            for module in _MODULES:
                names = vars(import_module(f"pgtail.{module}"))
                for exported in names.keys() & {*__all__}:
                    if isinstance(names[exported], type):
                        names[exported].__module__ = __name__  # in tracebacks
                if name in names:
                    value = globals()[name] = names[name]
                    return value
        raise AttributeError(f"module {__name__} has no attribute {name}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
