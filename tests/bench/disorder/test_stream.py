"""The benchmark of window joins through Structured Streaming: small, and with the runs of several cores made up."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from headrace.bench.disorder import stream as window_stream
from headrace.bench.measuring import cores as bound

SMALL = ["--batch", "4000", "--batches", "4", "--warm", "1", "--rate", "50000", "--keys", "50"]


def test_both_systems_are_measured_and_right(spark: SparkSession) -> None:
    result = window_stream.run([*SMALL, "--cores", "1"])
    assert [row["case"] for row in result["results"]] == ["headrace, 1 core", "spark, 1 core"]
    for row in result["results"]:
        assert "wrong" not in row
        assert row["windows"] > 5
        assert row["rows"] == 12_000
        assert row["rows_per_s"] > 0
    assert result["results"][0]["mean_error"] < 0.5
    assert result["ratios"]["rows/s of headrace / spark"] > 0
    (target,) = result["targets"]
    assert target["target"] == "rows/s of headrace on 1 core >= 500,000"
    Console(quiet=True).print(window_stream.table(result))


def test_each_number_of_cores_is_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def answer(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        cores = int(command[3])
        rows = [
            {"system": system, "cores": cores, "rows_per_s": rate * cores}
            for system, rate in (("headrace", 400_000), ("spark", 100_000))
        ]
        return subprocess.CompletedProcess(command, 0, json.dumps({"results": rows}), "")

    monkeypatch.setattr(bound.subprocess, "run", answer)
    monkeypatch.setattr(bound, "usable_cores", lambda: 2)
    result = window_stream.run([*SMALL, "--estimator", "svi"])
    assert [command[3:6] for command in commands] == [[str(n), "bench", "window-stream"] for n in (1, 2)]
    assert commands[1][-2:] == ["--cores", "2"]
    assert commands[0][commands[0].index("--estimator") + 1] == "svi"
    assert result["ratios"] == {
        "headrace: 2 cores / 1": 2.0,
        "spark: 2 cores / 1": 2.0,
        "rows/s of headrace / spark": 4.0,
    }
    assert result["targets"][0]["met"]


@pytest.mark.parametrize(
    "asked",
    [["--systems", "flink"], ["--warm", "12"], ["--batch", "1"], ["--rate", "nan"], ["--cores", "0"]],
)
def test_what_makes_no_sense_is_refused(asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        window_stream.run(asked)
    assert asked[0] in capsys.readouterr().err
