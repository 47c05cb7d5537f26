"""A driver on a cluster that is started again whenever it dies, and what must be true whenever it pauses."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pytest
from pyspark.sql import SparkSession
from tests.cluster import world
from tests.cluster.cleaner import marked
from tests.cluster.standalone import Standalone

import headrace as hr
from headrace.testing.oracle import Oracle, assert_same

DRIVER = Path(__file__).parent / "driver.py"
_PATIENCE = 240  # seconds for a step that has to wait for executors; a failure of the tests, not a measurement


class Trial:
    """One location that drivers keep fresh on a cluster, one after the other.

    Parameters
    ----------
    spark : a session of the test, which is not on the cluster: the oracle asks it.
    count : what happened: steps, answers that were compared, drivers that were started.
    """

    def __init__(self, cluster: Standalone, spark: SparkSession, home: Path, seed: int) -> None:
        self.cluster, self.spark, self.home, self.seed = cluster, spark, home, seed
        self.location = home / "state"
        self.acknowledged = 0
        self.count: Counter[str] = Counter()
        self._oracle = Oracle(spark)
        self._driver: subprocess.Popen[bytes] | None = None
        self._name, self._read = "", 0

    @property
    def driver(self) -> subprocess.Popen[bytes]:
        """The driver that runs."""
        assert self._driver is not None
        return self._driver

    def start(self) -> None:
        """Start a driver, and wait until it has opened the location."""
        self.count["drivers"] += 1
        self._name, self._read = f"driver{self.count['drivers']}", 0
        self._driver = self.cluster.start_driver(
            self._name, str(DRIVER), self.cluster.url, str(self.home), str(self.seed)
        )
        committed = self._wait_for("ready")
        assert committed >= self.acknowledged, f"step {self.acknowledged} was acknowledged, and {committed} is the last"

    def restart(self) -> None:
        """Start the next driver after one was killed."""
        self.driver.wait(60)
        self._news()
        assert self.driver.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.driver.stdin.close()
        self.start()

    def pause(self) -> None:
        """Let the driver end a step, which it must be able to, and the stream; then it waits."""
        self._ask("pause")
        self._wait_for("paused")

    def go_on(self) -> None:
        """Let the driver go on after a pause."""
        self._ask("go")

    def stop(self) -> None:
        """Have the driver close the engine and end."""
        self._ask("stop")
        assert self.driver.wait(_PATIENCE) == 0, self._log("err")

    def check(self, *, in_tasks: bool = False) -> None:
        """All answers are right, while the driver pauses; `in_tasks`: also those that tasks of the cluster read."""
        with hr.Engine(self.spark, self.location, read_only=True) as engine:
            truth = self._truth(engine)
            for name in world.SQL:
                self._same(name, engine.views[name].to_arrow(), truth[name])
            self._check_models(engine)
        if in_tasks:
            folder = self.home / "answers"
            folder.mkdir(exist_ok=True)
            self._ask(f"answers {folder}")
            self._wait_for("answered")
            for name in world.SQL:
                self._same(f"{name} in tasks", feather.read_table(folder / f"{name}.arrow"), truth[name])

    def check_files(self) -> None:
        """Once an engine has opened the location, there is no file in it that no record names, and all are whole."""
        folders = ("runs", "batches", "quarantine")
        before = {path.name for folder in folders for path in (self.location / folder).iterdir()}
        with hr.Engine(self.spark, self.location) as engine:
            assert engine.status().get("lost") is None
            engine.sync()
            snapshot = engine._store.snapshot
            needed = {"runs": snapshot.files(), "batches": set(), "quarantine": snapshot.set_aside()}
            self.count["files that the last opening removed"] += len(before.difference(*needed.values()))
            for folder, names in needed.items():
                assert {path.name for path in (self.location / folder).iterdir()} == names, folder
            assert engine.verify() == []

    def _truth(self, engine: hr.Engine) -> dict[str, pa.Table]:
        """What Spark computes from the rows that there must be; these are in the tables, each as often as it must."""
        status = engine.status()
        replay = world.Replay(self.seed).to(status["sources"]["steps"])
        assert replay.number >= self.acknowledged, "an acknowledged step is lost"
        assert status["quarantined"].get("sale", 0) == replay.bad
        files = sorted((self.home / "incoming").glob("*.parquet"))
        read = [world.readings(self.seed, int(file.stem)) for file in files]
        rows = replay.rows() | {"reading": pa.concat_tables([world.readings(0, 0).slice(0, 0), *read])}
        for name, expected in rows.items():
            self._same(name, _plain(engine.tables[name].to_arrow()), expected)
        self._oracle.set_rows({name: rows[name] for name in ("shop", "sale", "reading")})
        different = list(dict.fromkeys(sql for sql, _ in world.SQL.values()))
        answers = dict(zip(different, self._oracle.answers(different), strict=True))
        self._check_windows(engine, replay)
        return {name: answers[sql] for name, (sql, _) in world.SQL.items()}

    def _check_windows(self, engine: hr.Engine, replay: world.Replay) -> None:
        truth = world.final_windows(replay)
        found = engine.views["windows"].to_arrow().sort_by("window_start").to_pylist()
        starts = [row["window_start"] for row in found]
        assert starts == list(truth)[: len(starts)], "a window is missing, or there twice"
        assert len(starts) >= len(truth) - world.HORIZON / world.WINDOW - 1
        assert [row["value"] for row in found] == [pytest.approx(truth[start]) for start in starts]
        self.count["answers"] += 1

    def _check_models(self, engine: hr.Engine) -> None:
        sale, shop = (engine.tables[name].to_arrow().to_pylist() for name in ("sale", "shop"))
        rents = {row["id"]: row["rent"] for row in shop}
        pairs = [(row["pieces"], rents[row["place"]]) for row in sale if row["place"] in rents]
        joined = np.array(pairs, float).reshape(-1, 2)
        moments: Any = engine.views["moments"]
        kept = moments.to_arrow()
        assert kept["count"][0].as_py() == len(joined)
        assert kept["sums"][0].as_py() == pytest.approx(joined.sum(axis=0))
        assert np.ravel(kept["cofactor"][0].as_py()) == pytest.approx(np.ravel(joined.T @ joined))
        self.count["answers"] += 1
        if len(joined) > 10:
            model: Any = engine.views["model"]
            one = np.column_stack([np.ones(len(joined)), joined[:, 0]])
            fitted = np.linalg.lstsq(one, joined[:, 1], rcond=None)[0]
            assert [model.intercept_, *model.coef_] == pytest.approx(fitted, rel=1e-6, abs=1e-6)
            self.count["answers"] += 1

    def _same(self, what: str, actual: pa.Table, expected: pa.Table) -> None:
        self.count["answers"] += 1
        try:
            assert_same(_plain(actual), _plain(expected), relative=1e-9)
        except AssertionError as error:
            raise AssertionError(f"{what}: {error}\n{self._log()[-1500:]}") from error

    # -- what the driver says -----------------------------------------------------------------------------------

    def has_ended(self) -> bool:
        """Whether the driver has ended by itself."""
        return self.driver.poll() is not None

    def driver_jvms(self) -> list[int]:
        """The JVM of the driver."""
        commands = marked(self.cluster.mark)
        return [pid for pid, command in commands.items() if "SparkSubmit" in command and "java" in command]

    def _ask(self, command: str) -> None:
        assert self.driver.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # that it has ended is found when it does not answer
            self.driver.stdin.write(f"{command}\n".encode())
            self.driver.stdin.flush()

    def _wait_for(self, what: str) -> Any:
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            for line in self._news():
                if what in line:
                    return line[what]
            if self.has_ended() and not self._unread():
                raise DriverEnded(f"the driver ended with {self.driver.poll()}:\n{self._log('err')[-3000:]}")
            time.sleep(0.02)
        raise TimeoutError(f"the driver does not say {what!r}\n{self._log()[-2000:]}\n{self.cluster.last_words()}")

    def _news(self) -> list[dict[str, Any]]:
        """The next whole lines, up to one that somebody may wait for."""
        lines = []
        for line in self._unread():
            self._read += len(line)
            said = json.loads(line)
            self.acknowledged = max(self.acknowledged, said.get("acknowledged", 0))
            if "acknowledged" in said:
                self.count["steps"] += 1
                self.count["steps that came again"] += said["skipped"]
                self.count[f"steps as a {said['ran']}"] += not said["skipped"] and said["ran"] == "job"
            self.count["steps refused and tried again"] += "refused" in said
            lines.append(said)
        return lines

    def _unread(self) -> list[str]:
        text = self._log()[self._read :]
        return [line for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def _log(self, suffix: str = "") -> str:
        name = f"{self._name}.{suffix}" if suffix else self._name
        return self.cluster.log(name).read_text(errors="replace")


class DriverEnded(Exception):
    """A driver ended that nobody killed."""


def _plain(table: pa.Table) -> pa.Table:
    """Texts in one type: the oracle compares names and values."""
    kinds = {"large_string": pa.string()}
    return table.cast(pa.schema([(field.name, kinds.get(str(field.type), field.type)) for field in table.schema]))
