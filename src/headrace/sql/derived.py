"""Columns that a model needs and its query lacks, put around the query: products of columns, and bins of them."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.learn.learner import Derived
from headrace.learn.polynomial import quoted
from headrace.sql.reads import without_semicolon


def with_derived(sql: str, derived: Sequence[Derived]) -> str:
    """A query with more columns, or with other columns under the same names.

    >>> with_derived("SELECT a FROM t;", [Derived("a2", "a * a")])
    'SELECT *, a * a AS `a2` FROM (SELECT a FROM t)'
    >>> with_derived("SELECT a, b FROM t", [Derived("a", "a > 3", replaces=True)])
    'SELECT * EXCEPT (`a`), a > 3 AS `a` FROM (SELECT a, b FROM t)'
    """
    if not derived:
        return sql
    replaced = ", ".join(quoted(column.name) for column in derived if column.replaces)
    kept = f"* EXCEPT ({replaced})" if replaced else "*"
    made = ", ".join(f"{column.sql} AS {quoted(column.name)}" for column in derived)
    return f"SELECT {kept}, {made} FROM ({without_semicolon(sql)})"
