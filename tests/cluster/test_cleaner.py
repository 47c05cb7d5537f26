"""Whatever ends a test run, nothing of its cluster is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cluster.cleaner import marked
from tests.cluster.standalone import ROOT

# A run whose driver has started a process that does not end with it.
PROGRAM = """
import sys, time
from collections.abc import Callable
from pathlib import Path
from tests.cluster.standalone import Standalone
cluster = Standalone(Path(sys.argv[1]), small_disk=True)
started = "import subprocess, time; subprocess.Popen(['sleep', '600'], start_new_session=True); time.sleep(600)"
cluster.start_driver("driver", "-c", started)
print(cluster.mark, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_ended_leaves_nothing(tmp_path: Path, end: signal.Signals) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    run = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert run.stdout is not None
    with run.stdout:
        mark = run.stdout.readline().strip()
    _wait_until(lambda: len(marked(mark)) == 2)
    os.kill(run.pid, end)
    run.wait(60)
    _wait_until(lambda: not marked(mark))
    mounted = Path("/proc/mounts")
    _wait_until(lambda: not mounted.exists() or str(tmp_path) not in mounted.read_text())


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
