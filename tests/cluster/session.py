"""The Spark session of a driver of the tests: small, on the cluster that it is told, with speculation on."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from headrace.runtime.java import ensure_java

_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto"
_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "700m",
    "spark.driver.extraJavaOptions": _JAVA,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": _JAVA,
    "spark.executor.heartbeatInterval": "2s",
    "spark.network.timeout": "30s",
    "spark.network.timeoutInterval": "5s",
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    # Tasks here take tenths of a second, so a copy is started for what takes a little more.
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.task.duration.threshold": "2s",
}


def cluster_session(url: str, folder: Path) -> SparkSession:
    """Connect to a cluster."""
    ensure_java()
    builder = SparkSession.builder.master(url).appName("headrace-tests")
    for name, value in {**_SETTINGS, "spark.sql.warehouse.dir": str(folder / "warehouse")}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
