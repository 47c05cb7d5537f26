"""A short soak: the writer is killed, goes on, is compared with Spark; and what grows is said and fails."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.bench.measuring.processes import tree
from headrace.bench.soak import endless
from headrace.bench.soak.child import Child
from headrace.bench.soak.flatness import Measure
from headrace.bench.soak.plot import plot
from headrace.errors import HeadraceError


def test_a_writer_that_is_killed_goes_on_and_all_answers_are_right(tmp_path: Path) -> None:
    said: list[str] = []
    asked = ["--steps", "40", "--restarts", "1", "--samples", "6", "--checks", "1", "--plots", str(tmp_path)]
    views = ["--views", "by_shop", "by_operators", "best", "asked_for", "streamed"]
    result = endless.run([*asked, *views, "--location", str(tmp_path)], said.append)
    assert [row["wrong"] for row in result["results"] if row["case"] == "answers"] == []
    assert [restart["how"] for restart in result["restarts"]] == ["killed"]
    assert result["answers"] == 6
    assert result["reads"] > 0
    assert len(result["samples"]) == 6
    assert {"batch", "frame", "stream", "two tables"} <= result["turns"].keys()
    assert sum(result["turns"].values()) >= 40
    assert all(sample["driver"] > 20 and sample["location"] > 0.1 for sample in result["samples"])
    assert (tmp_path / "soak.svg").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["soak.svg"]
    assert any(line.startswith("100%, running") for line in said)


def a_result(values: list[float]) -> dict[str, Any]:
    options = endless._parser().parse_args(["--samples", "20"])
    seen = endless._Run()
    for i, value in enumerate(values):
        seen.samples.append({"minute": float(i), "share": i / len(values), "driver": value, "files": 100.0})
    seen.restarts = [
        {"how": "killed", "seconds": 1.0, "minute": 2.0},
        {"how": "stopped", "seconds": 1.0, "minute": 4.0},
    ]
    return endless._result(options, seen)


def test_what_grows_in_the_second_half_fails() -> None:
    flat = a_result([50.0 * i for i in range(10)] + [500.0] * 10)  # it grows in the first half only
    assert not any("wrong" in row for row in flat["results"])
    grown = a_result([500.0] * 10 + [500.0 + 10 * i for i in range(10)])
    assert [row["wrong"] for row in grown["results"] if "wrong" in row] == ["driver grows by 90.0 MB"]
    assert endless.table(grown).renderables
    drawn = plot(grown, [Measure("driver", "MB", "memory", 0.05, 1.0), Measure("step", "ms", "time", 0.05, 1.0)])
    assert drawn.count('class="samples"') == drawn.count('class="judged"') == 1
    assert len(re.findall(r'class="samples" d="M([^"]*)"', drawn)[0].split(" L")) == 20


def test_a_step_that_is_lost_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    class Opened:
        def __init__(self, step: int) -> None:
            self.lines = [{"opened": step}, {"ready": step}]

        def next(self, timeout: float) -> dict[str, Any]:
            return self.lines.pop(0)

        def kill(self) -> None:
            pass

    seen = endless._Run(newest=7)
    endless._restart(Opened(7), lambda: Opened(7), seen)  # type: ignore[arg-type, return-value]
    assert seen.wrong == []
    seen.restarts = []
    endless._restart(Opened(7), lambda: Opened(6), seen)  # type: ignore[arg-type, return-value]
    assert seen.wrong == ["step 7 was told of, and after the writer was killed it is 6"]


def test_a_child_that_ends_is_an_error_with_its_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "words.py").write_text(
        "import sys\nprint('{\"step\": 1}')\nprint('last words', file=sys.stderr)\nexit(3)\n"
    )
    child = Child("words", [], tmp_path / "log")
    assert child.next(20) == {"step": 1}
    with pytest.raises(HeadraceError, match=r"exit code 3(.|\n)*last words"):
        child.next(20)
    child.kill()


def test_a_tree_of_processes_is_measured() -> None:
    own = tree(os.getpid())
    assert own[0].pid == os.getpid()
    assert own[0].private > 20e6
    assert own[0].threads >= 1
    reading, writing = os.pipe()
    try:
        assert tree(os.getpid())[0].descriptors == own[0].descriptors + 2
    finally:
        os.close(reading)
        os.close(writing)
    child = os.spawnlp(os.P_NOWAIT, sys.executable, sys.executable, "-c", "import time; time.sleep(60)")
    try:
        assert child in [one.pid for one in tree(os.getpid())]
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert child not in [one.pid for one in tree(os.getpid())]
