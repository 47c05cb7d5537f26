"""A Spark session on this machine, set up the way Headrace's small, frequent jobs need it.

Spark's defaults suit long jobs on clusters. Each setting below was measured to matter for steps of some
milliseconds, or keeps a local session private (loopback only) and quiet. A session of your own works too: pass it
to `Engine`.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import SchemaError
from headrace.runtime.cache_share import WORKERS
from headrace.runtime.java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_ATTEMPTS = 3


def local_session(cores: int | None = None, memory: str = "4g", **conf: object) -> SparkSession:
    """Start a Spark session on this machine, or return the one this process already has.

    Parameters
    ----------
    cores
        Tasks that run at once; all cores that this process may use unless given.
    memory
        Heap of the JVM, as Spark writes sizes.
    **conf
        Further Spark settings, which win over the ones made here: `**{"spark.ui.enabled": True}`.

    A process has one JVM, whose settings cannot change: a session that is already there is returned as it is.
    """
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    if os.environ.get("SPARK_REMOTE"):
        raise SchemaError(
            "SPARK_REMOTE asks for a session of Spark Connect, which has no JVM here to plan with",
            way_out="unset it, and give a session of your own where Spark runs on a cluster: hr.Engine(spark, ...)",
        )
    # Workers must run the interpreter that has Headrace; Spark's default is whatever `python3` is on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Without it Spark looks the host's name up, which fails on machines that have no entry for their own name.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    ensure_java()
    settings = local_settings(cores or usable_cores(), memory)
    for name, value in conf.items():
        if name == "spark.driver.extraJavaOptions":
            value = f"{settings[name]} {value}"
        settings[name] = str(value).lower() if isinstance(value, bool) else str(value)
    builder = SparkSession.builder.appName("headrace")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    # Workers that lose their JVM complain on stderr; a session that is stopped first takes them along in silence.
    atexit.register(session.stop)
    return session


def local_settings(cores: int, memory: str) -> dict[str, str]:
    """Return the Spark settings of a local session; makes the temporary folder that they name."""
    log_settings = (Path(__file__).parent / "log4j2.properties").as_uri()
    warehouse = Path(tempfile.mkdtemp(prefix="headrace-warehouse-"))
    atexit.register(shutil.rmtree, warehouse, ignore_errors=True)
    return {
        "spark.master": f"local[{cores}, {TASK_ATTEMPTS}]",
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log_settings}",
        # Nothing listens beyond this machine.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Small jobs: one task per core, no re-planning between stages, warm workers, the cheapest channel to them.
        "spark.sql.shuffle.partitions": str(cores),
        "spark.default.parallelism": str(cores),
        "spark.sql.adaptive.enabled": "false",
        "spark.python.worker.reuse": "true",
        "spark.python.unix.domain.socket.enabled": "true",
        # How many of them share the memory of the machine.
        f"spark.executorEnv.{WORKERS}": str(cores),
        # Halves a micro-batch; safe because the location is a file system whose rename is atomic.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        # Answers must not depend on where the machine stands.
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(warehouse),
    }


def usable_cores() -> int:
    """Return how many cores this process may use, which a container or `taskset` can make fewer than there are."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
