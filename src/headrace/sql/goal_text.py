"""The goal of a view in a pipeline file: what stands between the name of the view and AS.

[TARGET LAG '5 seconds' | FINAL WORK 0.2 | BUDGET '10 cpu seconds per minute' | MANUAL]
[EVERY 100000 ROWS | EVERY '1 minute' | AT WINDOW END | ON REFRESH]
[IDLE AFTER '10 minutes']
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from headrace.errors import SchemaError
from headrace.relation.duration import Duration
from headrace.sql.cursor import Cursor
from headrace.sql.lexer import Kind, Token
from headrace.thrifty.goal import (
    AtWindowEnd,
    Budget,
    Every,
    EveryRows,
    FinalWork,
    Freshness,
    Goal,
    Manual,
    OnRefresh,
    TargetLag,
    Trigger,
)

T = TypeVar("T")


def goal_clause(cursor: Cursor) -> Freshness | None:
    """Read the goal of a view and its trigger; None if there is none."""
    first = cursor.now
    goal = _goal(cursor)
    if goal is None:
        if first.is_word("EVERY", "AT", "ON"):
            raise cursor.error(
                "a trigger says when an answer is wanted, and here is no goal before it",
                "Write the goal first, as in TARGET LAG '5 seconds' EVERY '1 minute'; FINAL WORK 1.0 waits.",
            )
        return None
    trigger = _trigger(cursor)
    return _checked(cursor, first, lambda: Freshness(goal, trigger))


def idle_clause(cursor: Cursor) -> Duration | None:
    """Read after how long without rows a view lets go of state; None if that is not said."""
    if not cursor.take_words("IDLE", "AFTER"):
        return None
    return _made(cursor, Kind.STRING, "a time, as in IDLE AFTER '10 minutes'", lambda t: Duration.parse(t.string))


def _goal(cursor: Cursor) -> Goal | None:
    if cursor.take_words("TARGET", "LAG"):
        return _made(cursor, Kind.STRING, "a time, as in TARGET LAG '5 seconds'", lambda token: TargetLag(token.string))
    if cursor.take_words("FINAL", "WORK"):
        return _made(cursor, Kind.NUMBER, "a share, as in FINAL WORK 0.2", lambda token: FinalWork(float(token.name)))
    if cursor.take_word("BUDGET"):
        return _made(
            cursor,
            Kind.STRING,
            "CPU time per time, as in BUDGET '10 cpu seconds per minute'",
            lambda t: Budget(t.string),
        )
    return Manual() if cursor.take_word("MANUAL") else None


def _trigger(cursor: Cursor) -> Trigger | None:
    if cursor.take_word("EVERY"):
        if cursor.now.kind is Kind.NUMBER:
            rows = _made(cursor, Kind.NUMBER, "a number of rows", lambda token: EveryRows(_whole(token)))
            if not cursor.take_word("ROWS", "ROW"):
                raise cursor.error("expected ROWS", "Write EVERY 100000 ROWS, or a time as in EVERY '1 minute'.")
            return rows
        return _made(cursor, Kind.STRING, "EVERY 100000 ROWS or EVERY '1 minute'", lambda token: Every(token.string))
    if cursor.take_words("AT", "WINDOW", "END"):
        return AtWindowEnd()
    return OnRefresh() if cursor.take_words("ON", "REFRESH") else None


def _whole(token: Token) -> int:
    text = token.name.replace("_", "")
    if not text.isdigit():
        raise SchemaError(f"{token.written} is no number of rows", way_out="Write a whole number.")
    return int(text)


def _made(cursor: Cursor, kind: Kind, meaning: str, make: Callable[[Token], T]) -> T:
    token = cursor.now
    if token.kind is not kind:
        raise cursor.error(f"expected {meaning.partition(',')[0]}", f"Write {meaning}.")
    cursor.take()
    return _checked(cursor, token, lambda: make(token))


def _checked(cursor: Cursor, token: Token, make: Callable[[], T]) -> T:
    """Make something that may be refused; the error points at the place in the file."""
    try:
        return make()
    except SchemaError as error:
        raise cursor.error(error.what, error.way_out, token) from error
