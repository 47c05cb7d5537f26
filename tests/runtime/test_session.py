"""A local session, in a process of its own: settings only show in a JVM that nobody else has started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

import headrace.errors
from headrace.runtime.session import local_settings, usable_cores

SOURCES = str(Path(headrace.errors.__file__).parent.parent)

PROGRAM = """
import json, os, sys
from headrace.runtime.session import local_session

spark = local_session(cores=2, memory="512m", **{"spark.sql.shuffle.partitions": 3})

def doubled(batches):
    import pyarrow as pa
    for batch in batches:
        yield pa.record_batch({"id": pa.array([2 * value.as_py() for value in batch["id"]], pa.int64())})

total = spark.range(100).repartition(2).mapInArrow(doubled, "id BIGINT").selectExpr("sum(id)").first()[0]
names = ["spark.master", "spark.driver.host", "spark.ui.enabled", "spark.sql.shuffle.partitions"]
print(json.dumps({
    "total": total,
    "python": os.environ["PYSPARK_PYTHON"] == sys.executable,
    "same": local_session(cores=1) is spark,
    "timezone": spark.conf.get("spark.sql.session.timeZone"),
    **{name: spark.sparkContext.getConf().get(name) for name in names},
}))
spark.stop()
"""


def test_a_local_session_runs_python_quietly_on_loopback(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in {"PYSPARK_PYTHON", "JAVA_HOME"}}
    environment["PYTHONPATH"] = SOURCES
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "total": 9900,
        "python": True,
        "same": True,
        "timezone": "UTC",
        "spark.master": "local[2, 3]",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "3",
    }
    # The JVM itself announces the one module that Spark asks for, and on a busy machine a worker of Spark may find its
    # pipe closed when the session stops; no option silences either.
    theirs = ("incubator modules", "Traceback (most recent call last):", "pyspark/daemon.py", "BrokenPipeError")
    noise = [line for line in done.stderr.splitlines() if not any(part in line for part in theirs)]
    assert noise == []
    assert list(tmp_path.iterdir()) == [], "nothing is left in the working directory"


def test_settings_name_a_log_file_that_exists() -> None:
    option = local_settings(2, "1g")["spark.driver.extraJavaOptions"]
    path = Path(unquote(option.removeprefix("-Dlog4j2.configurationFile=file://")))
    assert path.is_file()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_cores_are_those_this_process_may_use() -> None:
    assert usable_cores() == len(os.sched_getaffinity(0))
