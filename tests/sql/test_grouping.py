"""A GROUP BY at the end of a query is read and cut off; one inside it is left alone."""

from __future__ import annotations

import pytest

from headrace.errors import UnsupportedSQLError
from headrace.sql.grouping import split_group_by


@pytest.mark.parametrize(
    ("sql", "rest", "names"),
    [
        ("SELECT a FROM t", "SELECT a FROM t", ()),
        ("SELECT a, b FROM t GROUP BY a", "SELECT a, b FROM t", ("a",)),
        ("SELECT a FROM t\n  group\tBY a , `b c`, `d``e` -- last\n", "SELECT a FROM t", ("a", "b c", "d`e")),
        ("SELECT a FROM t GROUP BY a;", "SELECT a FROM t", ("a",)),
        ("SELECT a FROM (SELECT a FROM t GROUP BY a)", "SELECT a FROM (SELECT a FROM t GROUP BY a)", ()),
        ("SELECT a FROM (SELECT a FROM t GROUP BY a) GROUP BY a", "SELECT a FROM (SELECT a FROM t GROUP BY a)", ("a",)),
        ("SELECT 'GROUP BY x' AS a FROM t", "SELECT 'GROUP BY x' AS a FROM t", ()),
        ("SELECT a /* GROUP BY x */ FROM t GROUP BY a", "SELECT a /* GROUP BY x */ FROM t", ("a",)),
        ("SELECT 'open FROM t GROUP BY a", "SELECT 'open FROM t GROUP BY a", ()),
        ("SELECT `group` FROM t", "SELECT `group` FROM t", ()),
        ("SELECT group", "SELECT group", ()),
    ],
)
def test_split(sql: str, rest: str, names: tuple[str, ...]) -> None:
    assert split_group_by(sql) == (rest, names)


@pytest.mark.parametrize(
    "clause",
    [
        "a + 1",
        "1",
        "t.a",
        "a b",
        "a,",
        "",
        "ALL",
        "ROLLUP(a)",
        "a WITH ROLLUP",
        "a HAVING a > 1",
        "a ORDER BY a",
        "(a)",
        "a;b",
    ],
)
def test_more_than_names_is_refused(clause: str) -> None:
    with pytest.raises(UnsupportedSQLError, match=r"GROUP BY .*more than a list of columns") as refusal:
        split_group_by(f"SELECT a FROM t GROUP BY {clause}")
    assert "GROUP BY city" in refusal.value.way_out
