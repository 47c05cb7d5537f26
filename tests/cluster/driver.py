"""A driver of the tests: keeps the world fresh on a cluster, step after step, until it is told to stop or is killed.

Lines of its standard input are commands, lines of its standard output are what happened, as JSON. Each step goes by its
number, so a step that was committed before a kill is known when it comes again. Steps are taken in all ways that there
are: in the driver, as jobs over files, as jobs over DataFrames, and from a stream.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
from pyspark.sql import DataFrame, SparkSession
from tests.cluster.session import cluster_session
from tests.cluster.world import Replay, register, write_readings

import headrace as hr
from headrace.errors import HeadraceError

DRIVER_ROWS = 60  # a step without sales in bulk may run in the driver; others are jobs


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def commands() -> queue.Queue[str]:
    """What the test asks for. When nobody can ask any more, nobody needs this process."""
    asked: queue.Queue[str] = queue.Queue()

    def listen() -> None:
        for line in sys.stdin:
            asked.put(line.strip())
        os._exit(3)

    threading.Thread(target=listen, daemon=True).start()
    return asked


def given(spark: SparkSession, number: int, changes: dict[str, pa.Table]) -> dict[str, pa.Table | DataFrame]:
    """Every other step as DataFrames, those in bulk among them."""
    if number % 2:
        return dict(changes)
    return {name: spark.createDataFrame(rows) for name, rows in changes.items()}


def write_answers(engine: hr.Engine, folder: Path) -> None:
    """What tasks of the cluster read of each view."""
    for name, view in engine.views.items():
        if isinstance(view, hr.View):
            feather.write_feather(view.to_df().toArrow(), folder / f"{name}.arrow", compression="uncompressed")


def main() -> None:
    url, home, seed = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    asked, incoming = commands(), home / "incoming"
    incoming.mkdir(exist_ok=True)
    spark = cluster_session(url, home)
    with hr.Engine(spark, home / "state", buckets=4, driver_rows=DRIVER_ROWS, on_bad_rows="quarantine") as engine:
        register(engine)
        stream = spark.readStream.schema("sensor STRING, n BIGINT, value BIGINT").option("maxFilesPerTrigger", 1)
        engine.stream("reading", stream.parquet(str(incoming)))
        committed = engine.status()["sources"].get("steps", 0)
        # The step before comes once more, and must be known.
        replay = Replay(seed).to(max(0, committed - 1))
        say(ready=committed)
        while True:
            number, changes = replay.number + 1, replay.next()
            while True:
                try:
                    step = engine.apply(given(spark, number, changes), source=("steps", number))
                    break
                except HeadraceError as error:  # too many attempts of a task died: nothing was committed
                    say(refused=number, why=str(error)[:500])
                    if spark.sparkContext._jsc.sc().isStopped():
                        sys.exit(4)
            say(acknowledged=number, skipped=step.skipped, ran=step.ran)
            if number % 4 == 0:
                write_readings(incoming, seed, number)
                process(engine)
            if obey(engine, asked, number):
                return


def obey(engine: hr.Engine, asked: queue.Queue[str], number: int) -> bool:
    """Do what has been asked for; returns whether that is to stop."""
    is_paused = False
    while is_paused or not asked.empty():
        command, _, argument = asked.get().partition(" ")
        if command == "pause":
            process(engine)  # brings views with goals up to date, too
            is_paused = True
            say(paused=number)
        elif command == "answers":
            write_answers(engine, Path(argument))
            say(answered=argument)
        elif command == "go":
            is_paused = False
        elif command == "stop":
            return True
    return False


def process(engine: hr.Engine) -> None:
    """Read the stream to its end; what a killed task broke off is read again."""
    for attempt in range(5):
        try:
            engine.process_available()
            return
        except HeadraceError as error:
            say(refused="stream", why=str(error)[:500])
            if attempt == 4:
                raise


if __name__ == "__main__":
    main()
