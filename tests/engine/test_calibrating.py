"""Units of cost are fitted in the background, saved with the location, and change no plan that is there."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.engine import calibrating
from headrace.engine.calibrating import SWITCH, Calibration
from headrace.thrifty.calibration import OURS, Probes
from headrace.thrifty.cost import UNITS

SLOW = Probes(OURS.group, 10 * OURS.join, OURS.job, OURS.scan)


@pytest.fixture
def probed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Calibration is on, begins at once, and finds that joins are slow here; the list is how often it was made."""
    made: list[object] = []

    def probe(run: object, is_stopped: object) -> Probes:
        made.append(run)
        return SLOW

    monkeypatch.setenv(SWITCH, "1")
    monkeypatch.setattr(calibrating, "probe", probe)
    monkeypatch.setattr(calibrating, "DELAY", 0.0)
    return made


def wait_until(is_there: Callable[[], bool]) -> None:
    for _ in range(200):
        if is_there():
            return
        time.sleep(0.05)
    raise AssertionError("it has not happened in 10 seconds")


def test_units_are_fitted_once_and_plans_stay(spark: SparkSession, tmp_path: Path, probed: list[object]) -> None:
    units = tmp_path / "units.json"
    with hr.Engine(spark, tmp_path, calibrate=False) as engine:
        engine.table("shop", "id BIGINT, city STRING", key="id", expected_rows=100)
        engine.table("item", "id BIGINT, shop BIGINT", key="id", references={"shop": "shop"}, expected_rows=10_000)
        view = engine.view("v", "SELECT city, COUNT(*) AS n FROM item JOIN shop ON shop = shop.id GROUP BY city")
        before = view.planned.definition
        assert not units.exists()
    with hr.Engine(spark, tmp_path) as engine:
        wait_until(units.exists)
        assert engine.views["v"].planned.definition == before
        engine.apply({"shop": pd.DataFrame({"id": [1], "city": ["x"]}), "item": pd.DataFrame({"id": [1], "shop": [1]})})
        assert engine.views["v"].to_arrow().to_pylist() == [{"city": "x", "n": 1}]
    assert len(probed) == 1
    with hr.Engine(spark, tmp_path) as engine:
        assert engine.views["v"].planned.definition == before
        assert engine._access.statistics().units.join == 10 * UNITS.join
    assert len(probed) == 1


def test_what_is_damaged_or_of_another_machine_is_measured_again(
    spark: SparkSession, tmp_path: Path, probed: list[object]
) -> None:
    units = tmp_path / "units.json"
    for text in ("no JSON", json.dumps({"version": 1, "machine": "another", "units": {}})):
        units.write_text(text)
        calibration = Calibration(tmp_path, spark)
        assert calibration.units == UNITS
        calibration.start()
        wait_until(lambda: Calibration(tmp_path, spark).units.join == 10 * UNITS.join)
        calibration.stop()


def test_it_is_switched_off_and_stopped(
    spark: SparkSession, tmp_path: Path, probed: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrating, "DELAY", 60.0)
    calibration = Calibration(tmp_path, spark)
    calibration.start()
    calibration.stop()  # does not wait for it to begin
    monkeypatch.setenv(SWITCH, "0")
    calibration = Calibration(tmp_path, spark)
    calibration.start()
    calibration.stop()
    assert not probed
    assert not any(tmp_path.iterdir())


def test_the_probes_run_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    rows = Calibration(tmp_path, spark).query(1)
    assert rows == [(0, 0)]
