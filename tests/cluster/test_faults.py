"""Faults at random moments on a real cluster: nothing lost, nothing doubled, no answer wrong, no file left behind."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.cluster import faults, tally
from tests.cluster.standalone import standalone
from tests.cluster.trial import DriverEnded, Trial
from tests.seeds import SEED

from headrace.cli.main import app

COUNT = int(os.environ.get("HEADRACE_FAULTS") or 30)
_EVERY = 6  # answers are compared after every fault; after so many also those that tasks of the cluster read


@pytest.mark.cluster
@pytest.mark.timeout(0)  # it grows with the number of faults; whatever the driver does has a limit of its own
def test_faults(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(f"{SEED} cluster faults")
    with standalone(tmp_path / "cluster", small_disk=True) as cluster:
        trial = Trial(cluster, spark, tmp_path, rng.randrange(2**32))
        trial.start()
        wanted = faults.drawn_faults(rng, COUNT)
        for number, fault in enumerate(wanted):
            time.sleep(rng.uniform(0, 3))
            name = fault.__name__.replace("_", " ")
            began = time.monotonic()
            try:
                done = fault(trial, rng)
                time.sleep(rng.choice([0, rng.uniform(0, 2)]))
                trial.pause()
            except DriverEnded as ended:
                # It gives up when Spark has. That is no harm to what is kept, but it may not be the rule.
                trial.count["drivers that gave up"] += 1
                _say(capsys, f"the driver gave up after {name}: {str(ended)[-300:]}")
                trial.restart()
                trial.pause()
                done = True
            trial.count[f"fault: {name}" if done else f"skipped: {name}"] += 1
            trial.check(in_tasks=number % _EVERY == _EVERY - 1 or number == COUNT - 1)
            said = f"{number + 1} of {COUNT}: {name}" if done else f"{name}: not possible here, skipped"
            _say(capsys, f"{said}; step {trial.acknowledged}; {time.monotonic() - began:.0f} s")
            trial.go_on()
        trial.stop()
    trial.check_files()
    app(["verify", str(trial.location)], standalone_mode=False)
    tally.record({f"cluster, {name}" if ":" not in name else name: count for name, count in trial.count.items()})
    _say(capsys, tally.table(trial.count))
    assert trial.count["drivers that gave up"] <= COUNT // 10
    assert sum(count for name, count in trial.count.items() if name.startswith("fault: ")) >= 0.8 * COUNT


def _say(capsys: pytest.CaptureFixture[str], text: str) -> None:
    with capsys.disabled():
        print(text, flush=True)
