"""Hypothesis strategies for filters of rows: conditions, tables, operations, transactions, ranges of commits."""

from __future__ import annotations

from hypothesis import strategies as st

from pgtail.changes.commit_range import CommitRange
from pgtail.pgoutput.scalars import Point

COLUMNS = st.sampled_from(["a", "b", "old.a", "old.b", "new.c", "c"])
VALUES = st.sampled_from(["1", "-0.50", "t", "'a'", "'2024-01-01'", "'%a_'"])
TESTS = st.one_of(
    st.sampled_from(["is null", "is not null", "~ '[0-9]'", "!~* a", "is true", "is distinct from old.a"]),
    st.sampled_from(["->>'a' = '1'", "->'a'->>'b' is null", "->>1 > 0", "->>'a' like '%1%'", "->>'a' <> 2"]),
    st.builds(
        "{} {}".format, st.sampled_from(["=", "<>", "<", "<=", ">=", "like", "ilike", "is distinct from"]), VALUES
    ),
    st.builds("in ({}, {}, 7)".format, VALUES, VALUES),
    st.builds("between {} and {}".format, VALUES, VALUES),
    st.builds(
        "{} {}".format, st.sampled_from(["=", "<>", "<", "is not distinct from"]), COLUMNS.filter(lambda c: "." in c)
    ),
)
CONDITIONS = st.one_of(
    st.builds("{} {}".format, COLUMNS, TESTS),
    st.sampled_from(["op = 'update'", "xid in (0, 2)", "commit_ts > '1990-01-01'", "commit_ts is null", "xid < 1.5"]),
    st.sampled_from(["changed(a)", "changed(b)", "table = t", "op in (insert, delete)"]),
)
FILTERS = st.one_of(
    st.none(),
    st.sampled_from([{"ops": ["insert"]}, {"ops": ["update", "delete"]}, {"xids": [0, 2]}, {"tables": ["t"]}]),
    st.builds(lambda one: {"where": [one]}, CONDITIONS),
    st.builds(
        lambda since, until: {"commits": CommitRange(Point(time=since), Point(lsn=until))},
        st.sampled_from([None, 0, 10**18, 2**63 - 1]),
        st.sampled_from([None, 0x1_2345_6789, 0x1_2345_678A]),
    ),
    st.builds(
        lambda left, word, right: {"where": [f"{left} {word} ({right})"]},
        CONDITIONS,
        st.sampled_from(["and", "or", "and not", "or not"]),
        CONDITIONS,
    ),
)
