"""Steps with bad rows that are set aside: what it costs, and what is left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import headrace as hr
from headrace.engine.step_runner import StepRunner, translating_spark_errors
from headrace.errors import StepFailedError


@pytest.mark.parametrize("executor", ["inline", "spark"])
def test_only_a_step_with_bad_rows_pays_for_them(
    spark: SparkSession, tmp_path: Path, executor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[bool] = []
    place = StepRunner._place

    def counted(self: StepRunner, program: Any, inputs: Any, views: Any) -> Any:
        runs.append(program.judge_only)
        return place(self, program, inputs, views)

    monkeypatch.setattr(StepRunner, "_place", counted)
    with hr.Engine(spark, tmp_path, executor=executor, on_bad_rows="quarantine", buckets=3) as engine:
        engine.table("t", "id BIGINT, v BIGINT", key="id")
        view = engine.view("sums", "SELECT v % 5 AS g, SUM(v) AS s FROM t GROUP BY v % 5")
        ids = list(range(1_000))
        engine.apply({"t": pa.table({"id": ids, "v": ids})})
        assert runs == [False]
        runs.clear()
        # Keys that are there, in some buckets, beside rows that are good.
        step = engine.apply({"t": pa.table({"id": [3, 5, 2_000], "v": [1, 2, 7]})})
        assert runs == [False, True, False]
        assert step.quarantined == {"t": 2}
        assert engine.quarantine("t").num_rows == 2
        found = {row["g"]: row["s"] for row in view.to_arrow().to_pylist()}
        assert found == {g: sum(i for i in [*ids, 7] if i % 5 == g) for g in range(5)}
        # What the first attempt wrote is gone.
        files = {path.name for path in (engine.location / "runs").iterdir()}
        assert files == engine._store.snapshot.files()


def test_workers_that_do_not_have_headrace_are_recognised() -> None:
    def fail() -> None:
        raise PySparkException("ModuleNotFoundError: No module named 'headrace'\nJVM stacktrace: long")

    with pytest.raises(StepFailedError, match="set PYSPARK_PYTHON before the session is made"):
        translating_spark_errors(fail)
