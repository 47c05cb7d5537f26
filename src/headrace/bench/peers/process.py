"""A process of a peer, with a limit on its time and an eye on its memory.

A peer is foreign: it may hang, or leave a virtual machine behind. It runs in a session of its own, so that whatever it
starts can be counted with it and ended with it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_GLANCE = 0.2  # seconds between two looks at the memory; looking takes a few milliseconds


@dataclass(frozen=True)
class Ended:
    """How a process ended.

    Attributes
    ----------
    code : its exit code; None if its time was up.
    peak : most private memory of it and what it started, in bytes; 0 where the system does not report it.
    output : the end of what it printed.
    """

    code: int | None
    peak: int
    output: str


def run_limited(command: Sequence[str], folder: Path, environment: Mapping[str, str], time_limit: float) -> Ended:
    """Run a command in a folder until it ends or its time is up; nothing that it started outlives this call."""
    printed = folder / "printed.txt"
    peak, code = 0, None
    with printed.open("wb") as output:
        process = subprocess.Popen(
            list(command),
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        end = time.monotonic() + time_limit
        try:
            while code is None and (left := end - time.monotonic()) > 0:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = process.wait(min(_GLANCE, left))
                peak = max(peak, _private_bytes(process.pid))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return Ended(code, peak, "\n".join(printed.read_text(errors="replace").strip().splitlines()[-20:]))


def _private_bytes(session: int) -> int:
    """Return the resident memory, not shared with a file, of all processes of a session."""
    total = 0
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # it ended meanwhile
            if int((entry / "stat").read_text().rpartition(")")[2].split()[3]) == session:
                resident, shared = (int(field) for field in (entry / "statm").read_text().split()[1:3])
                total += (resident - shared) * _PAGE
    return total
