"""The table of a nightly run: what parts have counted is added up, and a part that fails is named."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.cluster import nightly, tally


def test_parts_add_up_and_a_failure_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = tmp_path / "tally"
    monkeypatch.setenv(tally.FILE, str(counted))
    record = "from tests.cluster import tally; tally.record({'fault: executor': 3, 'steps': 1, 'skipped: disk': 0})"
    commands = {
        "good": [sys.executable, "-c", record],
        "bad": [sys.executable, "-c", f"{record}; raise SystemExit(1)"],
    }
    assert nightly.run(commands, {**os.environ, "PYTHONPATH": str(nightly.ROOT)}) == ["bad"]
    counts = tally.total(counted)
    assert counts == {"fault: executor": 6, "steps": 2}
    lines = tally.table(counts).splitlines()
    assert [line.split()[-1] for line in lines] == ["6", "2", "6"]
    assert lines[-1].startswith("faults in all")
