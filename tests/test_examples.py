"""The examples run as they stand, and end with the right answers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
# A JVM that lives for seconds spends most of them compiling; the quick compiler nearly halves these tests.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
HEADRACE = "from headrace.cli.main import app; app()"


def run(*arguments: str, cwd: Path) -> str:
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT / "src")]))
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path, "JAVA_TOOL_OPTIONS": QUICK_JVM, "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_the_live_board(tmp_path: Path) -> None:
    printed = run(str(EXAMPLES / "live_board.py"), cwd=tmp_path)
    assert re.findall(r"^step (\d+)$", printed, re.MULTILINE) == ["1", "2", "3", "4", "5"]
    changes, board = printed.split("the board after 5 steps\n")
    assert re.search(r"^  - \w+ +\d+ goals", changes, re.MULTILINE)  # earlier rows of the board left it
    goals = [int(line.split()[1]) for line in board.splitlines()[1:]]
    assert sum(goals) == 26  # five reports of six goals, four of which took one back
    assert goals == sorted(goals, reverse=True)
    assert not list(tmp_path.iterdir())  # it leaves nothing behind


def test_the_house_prices(tmp_path: Path) -> None:
    printed = run(str(EXAMPLES / "house_prices.py"), cwd=tmp_path)
    steps = re.findall(r"^ +(\d+) +40,000 +([\d,]+)  (0\.\d{4}) ", printed, re.MULTILINE)
    assert len(steps) >= 5
    joined = [int(rows.replace(",", "")) for _, rows, _ in steps]
    assert joined == sorted(joined)  # more is inserted than deleted
    assert all(float(score) > 0.95 for _, _, score in steps)
    if apart := re.search(r"differ by (\S+) of their size", printed):  # scikit-learn is there
        assert float(apart[1]) < 1e-6
    assert printed.count("fitted in") == 3
    assert "model price: factorized maintenance of a join" in printed
    assert [path.name for path in tmp_path.iterdir()] == ["house_prices.svg"]
    assert (tmp_path / "house_prices.svg").read_text().startswith("<svg")


def test_the_pipeline(tmp_path: Path) -> None:
    folder = tmp_path / "pipeline"
    shutil.copytree(EXAMPLES / "pipeline", folder, ignore=shutil.ignore_patterns("incoming", "*.state"))
    run(str(folder / "generate.py"), cwd=tmp_path)
    printed = run("-c", HEADRACE, "run", str(folder / "sales.sql"), "--available-now", cwd=tmp_path)
    shown = re.search(r"^```text\n(.*?)^```$", (ROOT / "docs" / "pipelines.md").read_text(), re.MULTILINE | re.DOTALL)
    assert shown is not None
    assert _lines(printed) == _lines(shown[1])
    assert (folder / "sales.state" / "headrace.json").exists()


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]
