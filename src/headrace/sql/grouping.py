"""Take the GROUP BY off a query whose rows are grouped by something that is not SQL.

`SELECT city, price, area FROM house GROUP BY city` is no query that Spark would accept, yet it says well what is
meant by the moments of price and area per city. The clause is read here, and the rest goes to Spark as it is.
"""

from __future__ import annotations

from headrace.errors import PipelineError, UnsupportedSQLError
from headrace.sql.lexer import Kind, Token, tokens

_WAY_OUT = "write GROUP BY with names of selected columns, as the last clause: GROUP BY city, `size in m2`"


def split_group_by(sql: str) -> tuple[str, tuple[str, ...]]:
    """Split a query into the text before the GROUP BY at its end, and the names of that clause, if it has one.

    >>> split_group_by("SELECT city, price FROM house GROUP BY city")
    ('SELECT city, price FROM house', ('city',))
    """
    try:
        found = tokens(sql, "query")
    except PipelineError:  # something is never closed; Spark's parser tells with the whole query in view
        return sql, ()
    start = _last_group_by(found)
    if start is None:
        return sql, ()
    return sql[: found[start].start].rstrip(), _names(found[start + 2 :])


def _last_group_by(found: list[Token]) -> int | None:
    depth, last = 0, None
    for i, token in enumerate(found):
        depth += token.is_symbol("(") - token.is_symbol(")")
        if depth == 0 and token.is_word("GROUP") and found[i + 1].is_word("BY"):
            last = i
    return last


def _names(listed: list[Token]) -> tuple[str, ...]:
    names: list[str] = []
    for i, token in enumerate(listed):
        ends = token.kind is Kind.END or (token.is_symbol(";") and listed[i + 1].kind is Kind.END)
        if ends and i % 2:
            return tuple(names)
        expected = token.is_symbol(",") if i % 2 else token.kind in (Kind.WORD, Kind.NAME) and bool(token.name)
        if not expected or token.is_word("ALL", "ROLLUP", "CUBE", "GROUPING"):
            break
        names += [] if i % 2 else [token.name]
    written = " ".join(token.written for token in listed).strip()
    raise UnsupportedSQLError(f"GROUP BY {written} is more than a list of columns", way_out=_WAY_OUT)
