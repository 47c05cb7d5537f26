"""Open a location on a local Spark session.

What is slow waits until the location is known to be usable. Then the JVM starts, and while this process waits for it, a
thread loads the engine and compiles the kernels.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headrace.engine.meanwhile import Meanwhile
from headrace.engine.opening import AUTO, PROCESS, check_opening

if TYPE_CHECKING:
    from headrace.engine.engine import Engine


def connect(
    location: str | Path,
    *,
    cores: int | None = None,
    buckets: int | None = None,
    executor: str = "auto",
    on_bad_rows: str = "fail",
    driver_rows: int | None = None,
    durability: str = PROCESS,
    read_only: bool = False,
    calibrate: bool = True,
    sharing: str = AUTO,
    memory_budget: str | int | None = None,
) -> Engine:
    """Open a location on a local Spark session made for it; closing the engine ends that session.

    What is wrong with the location or an option is said at once, before Spark starts.

    Parameters
    ----------
    cores : tasks that run at once; all cores that this process may use unless given.
    buckets, executor, on_bad_rows, driver_rows, durability, read_only, calibrate, sharing, memory_budget : as
        for `Engine`.
    """
    check_opening(
        location,
        buckets=buckets,
        executor=executor,
        on_bad_rows=on_bad_rows,
        driver_rows=driver_rows,
        read_only=read_only,
        sharing=sharing,
        memory_budget=memory_budget,
        durability=durability,
    )
    from pyspark.sql import SparkSession

    from headrace.runtime.session import local_session

    running = SparkSession.getActiveSession()
    if running is None:
        Meanwhile().start()
    spark = local_session(cores=cores)
    try:
        from headrace.engine.engine import Engine

        engine = Engine(
            spark,
            location,
            buckets=buckets,
            executor=executor,
            on_bad_rows=on_bad_rows,
            driver_rows=driver_rows,
            durability=durability,
            read_only=read_only,
            calibrate=calibrate,
            sharing=sharing,
            memory_budget=memory_budget,
        )
    except BaseException:
        if running is None:
            spark.stop()
        raise
    engine._owns_session = running is None
    return engine
