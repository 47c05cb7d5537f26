"""The connections by which Spark's JVM calls Python, as a stream does for each of its micro-batches.

Every thread of the JVM that calls Python opens a connection of its own, which stays when the thread ends. Each costs a
socket on both sides and a thread in Python, so a program that runs its streams again and again would run out of them.
"""

from __future__ import annotations

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession


def close_idle(spark: SparkSession) -> None:
    """Close the connections by which nothing is being called; a thread that calls Python again opens a new one."""
    gateway = spark.sparkContext._gateway
    if gateway is None:
        return
    try:
        client = gateway.java_gateway_server.getCallbackClient()
        client.periodicCleanup()  # closes those that were not used since it was called before,
        client.periodicCleanup()  # so this call closes all that are idle now
    except Py4JError:
        return  # Spark was stopped, and all of its connections are closed
