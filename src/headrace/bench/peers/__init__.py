"""Flink SQL and Pathway beside Headrace, on the same update streams of TPC-H.

Neither can share an environment with Headrace, so each lives in one of its own (`make peers`) and runs as a process
with a script of this folder. A peer that is missing, fails or takes too long is a result that says so: a benchmark
prints it and goes on.

What is timed, and with which settings: Flink from submitting the job, in a virtual machine that has run the query on
the start of the stream before, to its end; parallelism 2, object reuse, DOUBLE amounts, state on the heap, no
checkpoints and no mini-batches. Pathway from starting the engine to the last change of the answer; one worker (its
readers keep a second core busy; two workers were slower on two cores), commits of 100 ms, whole cents. Both include
reading and parsing their files; neither includes the start of Python or Java, or imports.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.bench.peers.export import COLUMNS, MANIFEST, Changes, export_flink, export_pathway
from headrace.bench.peers.process import run_limited
from headrace.errors import HeadraceError
from headrace.runtime.java import ensure_java

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Peer:
    """A system that runs TPC-H queries over update streams.

    Attributes
    ----------
    title : its name for people.
    script : what its own Python runs, a file of this folder.
    export : writes a stream in the form that the script reads, and returns the number of changes.
    java : it needs Java; Headrace's will do.
    """

    title: str
    script: str
    export: Callable[[str, Changes, Path], int]
    java: bool = False


PEERS = {
    "flink": Peer("Flink SQL", "flink_tpch.py", export_flink, java=True),
    "pathway": Peer("Pathway", "pathway_tpch.py", export_pathway),
}
QUERIES = tuple(COLUMNS)
# Variables that would turn a peer into another program than the one in its environment.
_FOREIGN = ("PYTHON", "VIRTUAL_ENV", "FLINK", "PYFLINK", "PATHWAY", "HADOOP", "SUBMIT_ARGS", "_PYFLINK")


def available() -> dict[str, Path]:
    """Return the Python of each peer that is installed, by name.

    They are looked for in the folder that the variable HEADRACE_PEERS names, or in `.peers` of the current folder.
    """
    folder = Path(os.environ.get("HEADRACE_PEERS") or ".peers").absolute()
    return {name: python for name in PEERS if os.access(python := folder / name / "bin" / "python", os.X_OK)}


def run_peer(
    name: str,
    query: str,
    changes: Changes | Path,
    *,
    time_limit: float = 600.0,
    tell: Tell = lambda stage: None,
) -> dict[str, Any]:
    """Run a query on a peer, and return what it took and what it answered.

    Parameters
    ----------
    name : a peer of `PEERS`.
    query : one of `QUERIES`.
    changes : change batches in order, of the tables and columns that `COLUMNS` has for the query, with `__diff` of 1
        or -1 (and `__position`, if it is known how the updates of different tables follow one another); or a folder
        that the peer's `export` has written.
    time_limit : seconds for the whole process, its start and what it does to warm up included.
    tell : is called with each new stage.

    Returns
    -------
    A row of results: `system`, `case`, `rows`, `seconds`, `rows_per_s`, `peak_mb` (private memory of all that the peer
    started) and `answer`, the rows of the result as dictionaries by column name, in the order of their keys; dates are
    in ISO form, amounts are floats. If it failed, the reason as `failed` and no figures.
    """
    peer = PEERS[name]
    result: dict[str, Any] = {"system": name, "case": query}
    python = available().get(name)
    if python is None:
        return result | {"failed": f"{peer.title} is not installed; `make peers` installs it"}
    try:
        with tempfile.TemporaryDirectory(prefix=f"headrace-{name}-") as own:
            if isinstance(changes, Path):
                folder = changes.absolute()
            else:
                tell(f"{peer.title}: writing its input")
                folder = Path(own) / "input"
                peer.export(query, changes, folder)
            rows = json.loads((folder / MANIFEST).read_text())["rows"]
            tell(f"{peer.title}: {query} over {rows:,} changes")
            measured = _measure(peer, python, query, folder, Path(own), time_limit)
            if "failed" not in measured:
                measured["rows_per_s"] = rows / measured["seconds"]
            return result | {"rows": rows} | measured
    except (HeadraceError, OSError, ValueError) as error:  # the last are Arrow's and JSON's
        return result | {"failed": str(error)}


def _measure(peer: Peer, python: Path, query: str, folder: Path, own: Path, time_limit: float) -> dict[str, Any]:
    answered = own / "result.json"
    script = Path(__file__).parent / peer.script
    # Isolated (-I): the peer must not find modules of Headrace, nor of whoever started it.
    command = [str(python), "-I", str(script), query, str(folder), str(answered)]
    ended = run_limited(command, own, _environment(peer, own), time_limit)
    if ended.code is None:
        return {"failed": f"was not done after {time_limit:g} s"}
    if not answered.exists():
        return {"failed": f"ended with exit code {ended.code}: {ended.output or 'it said nothing'}"}
    measured: dict[str, Any] = json.loads(answered.read_text())
    return measured if "failed" in measured else measured | {"peak_mb": ended.peak / 1e6}


def _environment(peer: Peer, own: Path) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    if peer.java:
        environment["JAVA_HOME"] = str(ensure_java())
        environment["FLINK_LOG_DIR"] = str(own)
    return environment | {"PATHWAY_THREADS": "1"}
