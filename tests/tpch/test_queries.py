"""What holds an answer against an expected one must itself see what is wrong, and only that."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.tpch.queries import FOLDER, NAMES, QUERIES, Expected, Query, rows_of

from headrace.testing.oracle import sql_name

Q21 = Query("q21")  # ORDER BY numwait DESC, s_name LIMIT 100
Q13 = Query("q13")  # ORDER BY custdist DESC, c_count DESC
Q_B = Query("q_b")  # no order


def expected(table: pa.Table) -> Expected:
    return Expected(table.column_names, rows_of(table), [sql_name(kind) for kind in table.schema.types])


def test_every_fixture_is_a_query() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.sql")) == sorted(NAMES)
    assert {query.name: query.limit for query in QUERIES if query.limit} == {
        "q2": 100,
        "q3": 10,
        "q10": 20,
        "q18": 100,
        "q21": 100,
    }
    assert Query("q16").tables == {"part", "partsupp", "supplier"}
    assert Query("q_outer").tables == {"part", "partsupp", "lineitem", "orders"}
    assert not any("LIMIT" in query.unlimited or ";" in query.sql for query in QUERIES)


ANSWER = pa.table({"c_count": [3, 2, 1], "custdist": [9, 5, 5]})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (ANSWER.take([0, 2, 1]), "row 1 has"),
        (ANSWER.take([0, 1]), "no rows instead of 1 rows"),
        (ANSWER.take([0, 1, 2, 2]), "1 rows such as"),
        (ANSWER.select(["custdist", "c_count"]), "columns"),
        (ANSWER.set_column(0, "c_count", pa.array([3, 2, 1], pa.int32())), "types"),
        (pa.table({"c_count": [3, 2, 0], "custdist": [9, 5, 5]}), "instead of 1 rows such as"),
    ],
)
def test_differences_are_seen(wrong: pa.Table, message: str) -> None:
    assert Q13.difference(ANSWER, expected(ANSWER)) is None
    assert message in str(Q13.difference(wrong, expected(ANSWER)))


def test_without_an_order_any_will_do() -> None:
    rows = pa.table({"ps_partkey": [1, 2, 2]})
    assert Q_B.difference(rows.take([2, 0, 1]), expected(rows)) is None
    assert Q_B.difference(rows.take([0, 1]), expected(rows)) is not None


def test_a_limit_cuts_off_the_last_of_the_expected_rows() -> None:
    rows = pa.table({"s_name": [f"{number:03d}" for number in range(150)], "numwait": [150 - n for n in range(150)]})
    assert Q21.difference(rows.slice(0, 100), expected(rows)) is None
    assert Q21.difference(rows.slice(0, 99), expected(rows)) == "99 rows instead of 100"
    assert "row 99 has" in str(Q21.difference(rows.take([*range(99), 100]), expected(rows)))


def test_rows_that_tie_may_be_cut_off_and_stand_in_any_order() -> None:
    query = Query("q10")  # ORDER BY revenue DESC LIMIT 20
    rows = pa.table({"c_custkey": list(range(30)), "revenue": [7] * 10 + [5] * 20})
    assert query.difference(rows.take([*reversed(range(10)), *range(20, 30)]), expected(rows)) is None
    assert query.difference(rows.slice(10, 20), expected(rows)) is not None
