"""Windows of time in SQL: what a grouping by one becomes, what is refused, and the text that programs put together."""

from __future__ import annotations

from datetime import timedelta

import pytest

from headrace import sliding, tumbling
from headrace.errors import SchemaError, UnsupportedSQLError
from headrace.plan import native
from headrace.plan.timewindow import window_bound
from headrace.sql.analyse_tree import analyse_tree
from headrace.sql.catalyst import analyse
from headrace.sql.query import SqlQuery
from headrace.sql.reads import read_query
from headrace.sql.session import SqlSession

TEN = "GROUP BY window(ts, '10 minutes')"


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT window.start, window.end, count(*) FROM t {TEN}",
        f"SELECT window.end, count(*) FROM t {TEN}",
        f"SELECT window.start, window.end, count(*) AS n FROM t {TEN} HAVING n > 1 ORDER BY window DESC",
        "SELECT w.start, count(*) FROM (SELECT window(ts, '10 minutes') AS w FROM t) GROUP BY w",
        f"WITH c AS (SELECT window, count(*) AS n FROM t {TEN}) SELECT window_time(window) AS last, n FROM c",
        f"SELECT hour(window.start) AS h, count(DISTINCT a), count(DISTINCT b) FROM t {TEN}",
        "SELECT window(ts, '10 minutes').start AS s, count(*) FROM t GROUP BY window(ts, '10 minutes')",
    ],
)
def test_a_window_becomes_its_two_fields(session: SqlSession, sql: str) -> None:
    plans = [analyse(session, "v", sql).plan.keys, analyse_tree(session, "v", sql).tree.root.port.feeds[0].outputs[:2]]
    for keys in plans:
        bounds = [window_bound(key) for key in keys]
        assert [bound is not None and bound.is_end for bound in bounds] == [False, True]
        assert all(native.supported(key) for key in keys)
        assert [key.sql for key in keys] == ["window(ts, '10 minutes').start", "window(ts, '10 minutes').end"]


def test_a_window_that_slides_is_several_feeds_of_one_table(session: SqlSession) -> None:
    sql = "SELECT window.start, count(*) FROM t GROUP BY window(ts, '10 minutes', '5 minutes', '1 minute'), a"
    first, second = analyse_tree(session, "v", sql).tree.root.port.feeds
    assert (first.table, second.table) == ("t", "t")
    assert [output.sql for output in (*first.outputs[:2], *second.outputs[:2])] == [
        "window(ts, '5 minutes', '5 minutes', '1 minute').start",
        "(window(ts, '5 minutes', '5 minutes', '1 minute').start + INTERVAL 10 minutes)",
        "(window(ts, '5 minutes', '5 minutes', '1 minute').start - INTERVAL 5 minutes)",
        "window(ts, '5 minutes', '5 minutes', '1 minute').end",
    ]


@pytest.mark.parametrize(
    ("sql", "what", "way_out"),
    [
        (f"SELECT window, count(*) FROM t {TEN}", "column 'window'", "SELECT window.start, window.end"),
        (
            "SELECT session_window.start, count(*) FROM t GROUP BY session_window(ts, '10 minutes')",
            "session_window cannot be maintained",
            "group by window",
        ),
        (
            f"SELECT x.window.start, x.window.end, y.n FROM (SELECT window, count(*) AS n FROM t {TEN}) x "
            f"JOIN (SELECT window, max(a) AS n FROM t {TEN}) y ON x.window = y.window",
            "struct<start:timestamp,end:timestamp>",
            "SELECT window.start, window.end",
        ),
        (  # put together again, the window of the total would not be NULL
            "SELECT window IS NULL AS total, n FROM "
            "(SELECT window, count(*) AS n FROM t GROUP BY ROLLUP (window(ts, '10 minutes')))",
            "struct<start:timestamp,end:timestamp>",
            "SELECT window.start, window.end",
        ),
    ],
)
def test_what_operators_cannot_keep_of_windows_is_refused(
    session: SqlSession, sql: str, what: str, way_out: str
) -> None:
    with pytest.raises(UnsupportedSQLError) as caught:
        analyse_tree(session, "v", sql)
    assert what in caught.value.what
    assert way_out in str(caught.value.way_out)


def test_refusals_of_one_group_a_row_name_windows(session: SqlSession) -> None:
    with pytest.raises(UnsupportedSQLError, match="a window that slides") as caught:
        analyse(session, "v", "SELECT window.start, count(*) FROM t GROUP BY window(ts, '10 minutes', '5 minutes')")
    assert 'strategy="operators"' in str(caught.value.way_out)
    with pytest.raises(UnsupportedSQLError, match="session_window"):
        analyse(session, "v", "SELECT count(*) FROM t GROUP BY session_window(ts, '10 minutes')")
    with pytest.raises(UnsupportedSQLError, match="ROLLUP"):
        analyse(session, "v", "SELECT a, count(*) FROM t GROUP BY ROLLUP (a)")


def test_what_spark_recomputes_may_have_sessions(session: SqlSession) -> None:
    sql = "SELECT session_window.start AS s, count(*) AS n FROM t GROUP BY session_window(ts, '10 minutes')"
    assert dict(read_query(SqlQuery(session, "v", sql)).tables) == {"t": ("ts",)}


def test_the_text_of_windows() -> None:
    w = tumbling("orders", "ts", "600 seconds")
    assert str(w) == "window(`orders`.`ts`, '10 minutes')"
    assert (w.start, w.end) == (f"{w}.start", f"{w}.end")
    assert str(sliding("t", "a`b", timedelta(hours=1), "10 minutes")) == "window(`t`.`a``b`, '1 hour', '10 minutes')"
    moved = tumbling("t", "ts", "1 day", offset="5 hours")
    assert str(moved) == "window(`t`.`ts`, '1 day', '1 day', '5 hours')"


@pytest.mark.parametrize(
    "arguments",
    [
        ("t; DROP", "ts", "1 hour", "1 hour"),
        ("t", "", "1 hour", "1 hour"),
        ("t", 5, "1 hour", "1 hour"),
        ("t", "ts", "1 hour') --", "1 hour"),
        ("t", "ts", "0 seconds", "0 seconds"),
        ("t", "ts", "1 hour", "2 hours"),
        ("t", "ts", "1 hour", "1 month"),
    ],
)
def test_windows_of_nonsense_are_refused(arguments: tuple[str, str, str, str]) -> None:
    with pytest.raises(SchemaError) as caught:
        sliding(*arguments)
    assert caught.value.way_out


def test_an_offset_is_less_than_the_slide() -> None:
    with pytest.raises(SchemaError, match="offset"):
        tumbling("t", "ts", "1 hour", offset="1 hour")


def test_windows_of_text_are_read(session: SqlSession) -> None:
    w = tumbling("t", "ts", "10 minutes")
    sql = f"SELECT {w.start} AS start, {w.end} AS end, count(*) AS n FROM t GROUP BY {w}"
    assert [name for name, _, _ in analyse(session, "v", sql).schema] == ["start", "end", "n"]
