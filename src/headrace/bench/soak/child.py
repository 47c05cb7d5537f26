"""A process that the benchmark starts, and hears of by lines of JSON: what it says is kept until somebody asks."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from headrace.bench.measuring.processes import Taken, tree
from headrace.errors import HeadraceError

_ENDING_SECONDS = 60.0


class Child:
    """A process with a module of Headrace; `log` gets what it writes to its standard error."""

    def __init__(self, module: str, arguments: list[str], log: Path) -> None:
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,  # Ctrl-C is for the benchmark, which asks it to end
            )
        self._said: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._hear, daemon=True).start()

    def next(self, timeout: float) -> dict[str, Any] | None:
        """What it says next; None if it says nothing for so long.

        Raises
        ------
        HeadraceError : it has ended.
        """
        try:
            said = self._said.get(timeout=timeout)
        except queue.Empty:
            return None
        if said is None:
            code = self._process.wait()
            last = self._log.read_text(errors="replace").strip()[-2_000:]
            raise HeadraceError(
                f"A process of the benchmark ended with exit code {code}.\n{last}",
                way_out="The lines above are the end of what it wrote. Report it, if it is not the machine's fault.",
            )
        return said

    def ask(self, what: str) -> None:
        """Send it a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()

    def taken(self) -> list[Taken]:
        """What it and its descendants take; it is the first."""
        return tree(self._process.pid)

    def kill(self) -> None:
        """Kill the process, and nothing but it; then wait until what it had started has ended by itself."""
        there = self._pids()
        self._process.send_signal(signal.SIGKILL)
        self._wait(there)

    def stop(self) -> None:
        """Ask it to end, and wait until it has."""
        there = self._pids()
        with contextlib.suppress(OSError):  # it has ended already
            self.ask("stop")
        self._wait(there)

    def _pids(self) -> list[int]:
        # The number of a process that has ended may be another's by now.
        return [one.pid for one in self.taken()] if self._process.poll() is None else []

    def _wait(self, pids: list[int]) -> None:
        deadline = time.monotonic() + _ENDING_SECONDS
        left = pids
        while left and time.monotonic() < deadline:
            self._process.poll()
            left = [pid for pid in left if _is_there(pid)]
            time.sleep(0.05)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):  # what was not sent to a process that is gone
                pipe.close()

    def _hear(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError):  # a line that was cut off by a kill, or a pipe that is closed
            for line in self._process.stdout:
                if line.startswith("{"):
                    self._said.put(json.loads(line))
        self._said.put(None)


def _is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
