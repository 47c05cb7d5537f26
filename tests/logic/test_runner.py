"""The runner itself: a suite that cannot fail proves nothing, and one view must not take others down with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.logic.case_file import parse, rewritten, text_of
from tests.logic.runner import run

CASE = """
table t (x INT, s STRING)
  1, 'it''s'
  1, 'it''s'

step a zero comes
  + t: 0, null
  - t: 1, 'it''s'

query inverse
  SELECT 10 DIV x AS q FROM t
answer: q INT
  10
  10
after 1:
  - 10

query texts
  SELECT s, count(*) AS n FROM t GROUP BY s
answer: s STRING, n BIGINT
  'it''s', 2
after 1:
  - 'it''s', 2
  + null, 1
  + 'it''s', 1

query high ordered
  SELECT x FROM t ORDER BY x DESC
answer: x INT
  1
  1
after 1:
  1
  0

query windows
  SELECT stddev(x) OVER (ORDER BY x) AS r FROM t
answer: r DOUBLE
after 1: unchanged

refused clock
  SELECT current_date() AS d, x FROM t
says: the moon
"""


def test_each_statement_answers_for_itself(spark: SparkSession, tmp_path: Path) -> None:
    case = parse("made_up", CASE)
    wrong = run(spark, case, tmp_path / "all")
    assert wrong.keys() == {"inverse", "windows", "clock"}
    assert "step 1 (a zero comes) failed" in wrong["inverse"]
    assert "OVER" in wrong["windows"]
    assert "does not say 'the moon'" in wrong["clock"]


def test_what_is_wrong_is_found(spark: SparkSession, tmp_path: Path) -> None:
    case = parse("made_up", CASE)
    _, texts, high, _ = case.queries
    falsified = (
        replace(texts, name="one_more", answers=(texts.answers[0], (*texts.answers[1], ("more", 1)))),
        replace(texts, name="one_less", answers=(texts.answers[0], texts.answers[1][1:])),
        replace(texts, name="at_the_load", answers=(texts.answers[1], texts.answers[1])),
        replace(high, name="order", answers=(high.answers[0], high.answers[1][::-1])),
        replace(high, name="no_order", ordered=False, answers=(high.answers[0], high.answers[1][::-1])),
        replace(texts, name="types", columns=high.columns),
        replace(texts, name="unfinished", answers=texts.answers[:1]),
    )
    wrong = run(spark, replace(case, queries=falsified, errors=()), tmp_path / "all")
    assert wrong.keys() == {"one_more", "one_less", "at_the_load", "order", "types", "unfinished"}
    assert "missing    'more', 1" in wrong["one_more"]
    assert "unexpected" in wrong["one_less"]
    assert wrong["at_the_load"].startswith("the load")
    assert "wrong order" in wrong["order"]
    assert "columns s STRING, n BIGINT instead of x INT" in wrong["types"]
    assert "tests.logic.expect" in wrong["unfinished"]


def test_a_case_file_is_written_as_it_is_read() -> None:
    case = parse("made_up", CASE)
    queries = {query.name: query for query in case.queries}
    assert rewritten(CASE, queries) == CASE
    assert parse("made_up", text_of(case)) == replace(case, errors=())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("table t (x INT)\n  1, 2", r"line 1 .*2 values for 1 columns"),
        ("table t (s STRING)\n  a", "texts are quoted"),
        ("table t (x INT)\nstep\n  + u: 1", "line 2"),
        ("table t (x INT)\nstep\n  t: 1", "a change is"),
        ("query a\n  SELECT 1\nquery a\n  SELECT 2", "same name"),
        ("tabel t (x INT)", "a section starts with"),
    ],
)
def test_a_bad_case_file_names_its_line(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse("bad", text)


def test_a_step_cannot_delete_what_is_not_there() -> None:
    case = parse("bad", "table t (x INT)\n  1\nstep\n  -2x t: 1")
    with pytest.raises(ValueError, match="step 1: t has no row 1 to delete"):
        case.rows(1)
