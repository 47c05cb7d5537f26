"""All kinds of faults, for hours: `make nightly`. Each part is a command that can be run by itself.

The parts add what they count to one file, which becomes the table at the end; it is printed even if one has failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.cluster import tally

ROOT = Path(__file__).parents[2]


def parts(kills: str, crashes: str, faults: str) -> dict[str, list[str]]:
    """The commands, by what they do."""
    kill = [sys.executable, "-m", "pytest", "tests/engine/test_faults.py", "-k", "kills_of_the_driver"]
    return {
        "kills of a driver on this machine": ["env", f"HEADRACE_KILLS={kills}", *kill],
        "power cuts of a simulated disk": ["make", "crashes", f"N={crashes}"],
        "damaged locations": ["make", "fuzz"],
        "faults on a cluster": ["make", "cluster-test", f"FAULTS={faults}"],
    }


def main() -> None:
    kills, crashes, faults = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        counted = Path(folder) / "tally"
        counted.touch()
        failed = run(parts(kills, crashes, faults), {**os.environ, tally.FILE: str(counted)})
        counts = tally.total(counted)
    if "power cuts of a simulated disk" not in failed:  # which says itself what it did; all that it was asked for
        counts["fault: power cut of a simulated disk"] = int(crashes)
    print(f"\n{tally.table(counts)}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def run(commands: Mapping[str, list[str]], environment: Mapping[str, str]) -> list[str]:
    """Run commands one after the other; returns which of them failed."""
    failed = []
    for name, command in commands.items():
        print(f"== {name}", flush=True)
        if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode:
            failed.append(name)
    return failed


if __name__ == "__main__":
    main()
