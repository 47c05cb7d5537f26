"""What the system knows of Spark's JVM: the CPU time that it has taken, and the memory.

Only the driver's JVM is seen, which on a local master is the one that runs the tasks too.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path

from pyspark.sql import SparkSession


def java_cpu(spark: SparkSession) -> float:
    """The CPU seconds that Spark's JVM has taken so far; 0 where the system does not report it."""
    stat = _told(spark, "stat")
    if not stat:
        return 0.0
    user, system = stat.rpartition(")")[2].split()[11:13]  # after the name, which may contain anything
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def java_peak(spark: SparkSession) -> int:
    """The peak memory of Spark's JVM in bytes; 0 where the system does not report it."""
    found = re.search(r"VmHWM:\s+(\d+) kB", _told(spark, "status"))
    return int(found[1]) * 1024 if found else 0


def _told(spark: SparkSession, file: str) -> str:
    try:
        return Path(f"/proc/{_process(spark)}/{file}").read_text()
    except OSError:
        return ""


@lru_cache(maxsize=4)
def _process(spark: SparkSession) -> int:
    java = spark.sparkContext._jvm
    assert java is not None
    return int(java.java.lang.ProcessHandle.current().pid())
