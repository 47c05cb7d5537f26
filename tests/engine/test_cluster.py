"""On `local-cluster`, where driver and executors share nothing but the location: incremental = recomputed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
os.environ["PYSPARK_PYTHON"] = sys.executable
sys.path.insert(0, str(Path(sys.argv[1]).parents[1]))
import headrace as hr
from headrace.runtime.java import ensure_java
from headrace.testing.oracle import Oracle, assert_same
from pyspark.sql import SparkSession
def load(name):
    spec = spec_from_file_location(name, Path(sys.argv[1]) / f"{name}.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
test_oracle, test_foreign, test_join_oracle = load("test_oracle"), load("test_foreign"), load("test_join_oracle")
test_recompute_buckets = load("test_recompute_buckets")
ensure_java()
builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
for name, value in {
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2", "spark.sql.adaptive.enabled": "false",
    "spark.sql.warehouse.dir": sys.argv[2] + "/warehouse",
}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
for seed in (101, 102, 103):
    with hr.Engine(spark, Path(sys.argv[2]) / f"state{seed}", executor="spark", buckets=3) as engine:
        test_oracle.check_stream(engine, Oracle(spark), seed, steps=3, size=40, as_frames=seed % 2 == 0)
with hr.Engine(spark, Path(sys.argv[2]) / "foreign", executor="spark", buckets=3) as engine:
    test_foreign.check_steps(engine, Oracle(spark), 104, steps=3, sizes={})
    late = engine.view("late", test_foreign.BOARD, strategy="foreign-key")
    assert_same(late.to_arrow(), engine.views["b"].to_arrow())
with hr.Engine(spark, Path(sys.argv[2]) / "joins", executor="spark", buckets=3) as engine:
    test_join_oracle.check_stream(engine, 201, steps=2, size=40)
with hr.Engine(spark, Path(sys.argv[2]) / "recomputed", executor="spark", buckets=3) as engine:
    test_recompute_buckets.check_stream(engine, Oracle(spark), 301, sizes=(60,))
blocks = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()
print("same", blocks, flush=True)
spark.stop()
"""


@pytest.mark.whole
@pytest.mark.timeout(900)
def test_local_cluster(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(Path(__file__).parent), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=800,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.split() == ["same", "3"]  # the driver and two executors
