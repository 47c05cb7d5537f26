"""All 22 queries of TPC-H, and CrocodileDB's four, kept by operators: every step leaves Spark's answers, or DuckDB's.

Rows of all eight tables come, leave and change, references dangle, and nations and regions change; answers are
compared value by value, without tolerance, because TPC-H's numbers are decimals.
"""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from tests.tpch.queries import QUERIES, Query
from tests.tpch.recording import Notes, Recording, Run, record

pytestmark = pytest.mark.timeout(3600)  # the first test of a run waits for all its steps

RUNS = {
    "scale-0.01": Run(0.01, share=0.01, strategies=("operators", "auto"), by_spark=10),
    "scale-0.1": Run(0.1, share=0.001, strategies=("operators",), by_spark=10, late=True),
}

every_query = pytest.mark.parametrize("query", [pytest.param(query, id=query.name) for query in QUERIES])


@pytest.fixture(scope="module", params=[pytest.param(run, marks=pytest.mark.xdist_group(run)) for run in RUNS])
def recording(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Recording:
    return record(spark, tmp_path_factory.mktemp("tpch"), RUNS[request.param])


def check(recording: Recording, query: Query, notes: Notes) -> None:
    for view in recording.run.views(query):
        if view in recording.refused:
            raise recording.refused[view]
    wrong = [f"{view}, {note}" for view in recording.run.views(query) for note in notes.get(view, [])]
    assert not wrong, "\n".join(wrong[:5])


@every_query
def test_answers_are_right_after_every_step(recording: Recording, query: Query) -> None:
    check(recording, query, recording.wrong_answers)


@every_query
def test_changes_add_up_to_the_answers(recording: Recording, query: Query) -> None:
    check(recording, query, recording.wrong_changes)


@every_query
def test_undoing_all_steps_restores_the_first_answers(recording: Recording, query: Query) -> None:
    check(recording, query, recording.wrong_when_undone)


@every_query
def test_the_stream_is_no_empty_exercise(recording: Recording, query: Query) -> None:
    assert recording.answers_changed[query.name] >= 2


def test_no_view_is_kept_in_another_way(recording: Recording) -> None:
    """A view that fell back on recomputation would be right, and prove nothing."""
    by_operators = {view: kept_by for view, kept_by in recording.kept_by.items() if view.endswith("_operators")}
    assert set(by_operators.values()) == {"operators"}, by_operators
    assert "recompute" not in recording.kept_by.values()


def test_no_file_is_damaged(recording: Recording) -> None:
    assert recording.damage == []
