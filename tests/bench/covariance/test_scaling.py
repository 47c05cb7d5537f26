from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from headrace.bench.covariance import scaling
from headrace.bench.measuring import cores as bound
from headrace.errors import HeadraceError
from headrace.runtime.session import usable_cores


def test_scaling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are processes with sessions of their own, too slow for a test: their answers are made up here."""
    commands: list[list[str]] = []

    def answer(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        cores = int(command[3])
        row = {"case": "factorized", "rows": 8, "seconds": 4.0 / cores, "rows_per_s": 2.0 * cores}
        done = {"results": [row | {"steady_rows_per_s": 3.0 * cores}], "paper": {"speed_up_at_most": 40.0}}
        return subprocess.CompletedProcess(command, 0, json.dumps(done), "")

    monkeypatch.setattr(bound.subprocess, "run", answer)
    monkeypatch.setattr(bound, "usable_cores", lambda: 2)
    result = scaling.run(["--benches", "housing", "--scales", "0.5"])
    assert [row["case"] for row in result["results"]] == ["housing, 1 core", "housing, 2 cores"]
    assert result["ratios"] == {
        "housing: speed-up from 1 to 2 cores": 2.0,
        "housing: speed-up from 1 to 2 cores (steady)": 2.0,
        "housing: speed-up from 1 to 64 cores, at most, on paper": 40.0,
    }
    assert [command[3:7] for command in commands] == [[str(n), "bench", "housing", "--json"] for n in (1, 2)]
    assert commands[0][-2:] == ["--scale", "0.5"]
    assert scaling.table(result).renderables


def test_a_process_is_bound_before_it_starts() -> None:
    listing = subprocess.run(
        [bound.sys.executable, "-c", bound._BOUND, "1", "bench", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "scaling" in json.loads(listing.stdout)


def test_no_more_cores_than_there_are() -> None:
    with pytest.raises(HeadraceError, match="cores were asked for"):
        scaling.run(["--cores", "1", str(usable_cores() + 1)])


def test_a_run_that_fails_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = subprocess.CompletedProcess([], 3, "", "no Java")
    monkeypatch.setattr(bound.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(HeadraceError, match=r"exit code 3\.\nno Java"):
        scaling.run(["--benches", "housing", "--cores", "1"])
