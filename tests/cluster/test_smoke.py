"""A standalone cluster for a moment, in every run of all tests: every kind of view, and one executor that is killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.cluster.standalone import kill, standalone
from tests.cluster.trial import Trial
from tests.seeds import drawn


@pytest.mark.timeout(600)
def test_smoke(spark: SparkSession, tmp_path: Path) -> None:
    with standalone(tmp_path / "cluster") as cluster:
        trial = Trial(cluster, spark, tmp_path, drawn("cluster smoke", 1)[0])
        trial.start()
        kill(cluster.executors()[0])
        trial.pause()
        trial.check(in_tasks=True)
        trial.stop()
        trial.check_files()
    assert trial.count["steps"] > 0
