"""Runs benchmarks in processes of their own, each bound to a number of cores from its start."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from headrace.errors import HeadraceError
from headrace.runtime.session import usable_cores

# Affinity lasts through exec, so everything that the benchmark starts has it too.
_BOUND = """
import os, sys
cores = int(sys.argv[1])
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
os.execv(sys.executable, [sys.executable, "-c", "from headrace.cli.main import app; app()", *sys.argv[2:]])
"""


def check_cores(cores: int, instead: str = "") -> None:
    """Refuse more cores than this process may use; `instead` is added to the way out."""
    if cores > usable_cores():
        raise HeadraceError(
            f"{cores} cores were asked for, and this process may use {usable_cores()}.",
            way_out=f"Give fewer with --cores{instead}.",
        )


def run_bound(bench: str, cores: int, asked: list[str]) -> dict[str, Any]:
    """Run a benchmark on some cores, which bind the JVM and the threads of libraries too; return its result."""
    command = [sys.executable, "-c", _BOUND, str(cores), "bench", bench, "--json", *asked]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HeadraceError(
            f"The benchmark {bench} on {cores} cores ended with exit code {done.returncode}.\n{done.stderr.strip()}",
            way_out=f"Run it alone to see more: headrace bench {bench} {' '.join(asked)}",
        )
    result: dict[str, Any] = json.loads(done.stdout)
    return result
