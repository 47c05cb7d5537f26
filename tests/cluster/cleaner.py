"""Ends every process of a cluster once the test run that started it is gone, in whichever way it went.

It runs in a session of its own, so Ctrl-C does not reach it, and waits for the end of its standard input, which comes
when the test run closes it, ends or is killed. All processes of a cluster have a mark in their environment, which
children inherit: executors, their Python workers, drivers and their JVMs. So none is forgotten, and none of another
cluster, or of anybody else, is touched.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

MARK = "HEADRACE_TEST_CLUSTER"


def marked(mark: str) -> dict[int, str]:
    """The processes of a cluster, with their command lines."""
    found = {}
    wanted = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue  # it ended meanwhile, or belongs to somebody else
    return {pid: command for pid, command in found.items() if command}  # those without one have ended already


def end_all(mark: str) -> None:
    """Kill all processes of a cluster; those that are killed may just have started others."""
    deadline = time.monotonic() + 30
    while (left := marked(mark)) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def main() -> None:
    mark, *mounted = sys.argv[1:]
    sys.stdin.read()
    end_all(mark)
    for folder in mounted:
        subprocess.run(["umount", "-l", folder], check=False, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
