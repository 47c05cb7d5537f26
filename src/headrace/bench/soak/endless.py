"""A soak: an hour of random changes to tables that do not grow, with views of every kind, restarts and a reader.

A process changes rows by batches, Spark frames and a stream, in the driver and in jobs; adds tables and views and drops
them again; has bad rows set aside; and gets and loses a memory budget. In the first half of the time it is stopped, or
killed, several times, and goes on with the location as it finds it. In the second half one process lives, so that what
it gathers shows. Another process reads all the time. Now and then all answers are compared with Spark's.

As many rows are alive at the end as at the beginning. So memory, files, descriptors, threads and the time of a step
have to stay as they are: a line through the samples of the second half says by how much each rises, and the benchmark
fails if one rises by more than its tolerance. Ctrl-C ends it early, and what has been sampled by then is judged.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from headrace.bench.measuring.cores import check_cores
from headrace.bench.soak.child import Child
from headrace.bench.soak.flatness import Measure, trend
from headrace.bench.soak.plot import save_plot
from headrace.bench.soak.workload import VIEWS
from headrace.errors import HeadraceError

Tell = Callable[[str], None]

_MB = 1e6
MEASURES = (
    Measure("driver", "MB", "private memory of the writing process", 0.05, 12.0),
    Measure("worker", "MB", "private memory of the largest Python worker", 0.08, 12.0),
    Measure("java", "MB", "private memory of its JVM", 0.05, 30.0),
    Measure("java alive", "MB", "what is alive in the JVM after a collection", 0.08, 12.0),
    Measure("reader", "MB", "private memory of the reading process", 0.05, 12.0),
    Measure("location", "MB", "bytes of the location", 0.10, 1.0),
    Measure("files", "", "files of the location", 0.10, 40.0),
    Measure("descriptors", "", "open in the writer, its JVM and its workers", 0.05, 15.0),
    Measure("threads", "", "of the same processes", 0.05, 10.0),
    Measure("step", "ms", "median of usual steps since the last sample", 0.15, 10.0),
    Measure("step / sort", "", "the same, by the time of a fixed sort", 0.15, 0.5),
)
_OPENING_SECONDS, _ANSWERING_SECONDS = 1200.0, 900.0
_RESTARTS_UNTIL = 0.45  # of the run


@dataclass
class _Run:
    """What a run has seen so far."""

    began: float = field(default_factory=time.monotonic)
    steps: int = 0
    newest: int = 0  # the last step that the writer has told of
    kinds: Counter[str] = field(default_factory=Counter)
    times: list[float] = field(default_factory=list)  # of usual steps since the last sample
    references: list[float] = field(default_factory=list)
    samples: list[dict[str, float]] = field(default_factory=list)
    restarts: list[dict[str, Any]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    answers: int = 0
    reads: int = 0

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def note(self, said: dict[str, Any]) -> None:
        """Note what the writer says."""
        if "wrong" in said:
            self.wrong.append(said["wrong"])
        if "step" in said:
            self.steps += 1
            self.newest = said["step"]
            self.kinds[said["kind"]] += 1
            self.references.append(said["reference"])
            if said["kind"] == "batch":
                self.times.append(said["seconds"])
        if "checked" in said:
            self.answers += said["checked"]
            self.wrong += said["wrong_answers"]


def run(argv: list[str], tell: Tell = lambda stage: None) -> dict[str, Any]:
    """Run the benchmark; see `--help` for its options."""
    options = _parser().parse_args(argv)
    check_cores(options.cores)
    with tempfile.TemporaryDirectory(
        prefix="headrace-soak-", dir=options.location, ignore_cleanup_errors=True
    ) as folder:
        return _run(Path(folder), options, tell)


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="headrace bench soak", description=__doc__)
    add = made.add_argument
    add("--minutes", type=float, default=60.0, help="how long it takes (default 60)")
    add("--steps", type=int, default=None, help="so many turns instead of minutes")
    add("--cores", type=int, default=2, help="tasks of the writer that run at once (default 2)")
    add("--views", nargs="+", choices=list(VIEWS), default=list(VIEWS), help="which views are kept (default: all)")
    add("--restarts", type=int, default=6, help="kills and clean stops, in turns, in the first half (default 6)")
    add("--samples", type=int, default=120, help="how often memory and files are measured (default 120)")
    add("--checks", type=int, default=20, help="how often all answers are compared with Spark's (default 20)")
    add("--seed", type=int, default=1, help="of the changes (default 1)")
    add("--plots", type=Path, default=None, help="folder for a picture of all samples")
    add("--location", type=Path, default=None, help="folder for the state (default: that of temporary files)")
    return made


class _Schedule:
    """What is due by now; everything is spread evenly over a run, but for restarts, which come in its first part."""

    def __init__(self, options: argparse.Namespace) -> None:
        restarts = [_RESTARTS_UNTIL * (i + 1) / options.restarts for i in range(options.restarts)]
        self._due = {
            "sample": [(i + 1) / options.samples for i in range(options.samples)],
            "check": [(i + 1) / options.checks for i in range(options.checks)],
            "restart": restarts,
        }

    def due(self, what: str, share: float) -> bool:
        """Whether something is due, now that such a share of the run is over; it is then due again later."""
        times = self._due[what]
        if not times or times[0] > share:
            return False
        while times and times[0] <= share:
            times.pop(0)
        return True


def _run(folder: Path, options: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    location, schedule = folder / "state", _Schedule(options)

    def writer(seed: int) -> Child:
        arguments = [str(location), str(seed), str(options.cores), ",".join(options.views)]
        return Child("headrace.bench.soak.writer", arguments, folder / "writer.log")

    children = [writer(options.seed)]
    try:
        tell("the writer fills its tables and views")
        seen = _Run()
        _until(children[0], "ready", seen)
        children.append(Child("headrace.bench.soak.reader", [str(location)], folder / "reader.log"))
        _until(children[1], "ready", seen)
        while (said := children[0].next(0.001)) is not None:
            seen.note(said)
        seen.began, seen.steps = time.monotonic(), 0  # what was done while the reader started is no part of the run
        with contextlib.suppress(KeyboardInterrupt):
            _soak(children, location, schedule, lambda: writer(options.seed + len(seen.restarts)), seen, options, tell)
        for child in children:
            child.stop()
    finally:
        for child in children:
            child.kill()
    return _result(options, seen)


def _soak(
    children: list[Child],
    location: Path,
    schedule: _Schedule,
    writer: Callable[[], Child],
    seen: _Run,
    options: argparse.Namespace,
    tell: Tell,
) -> None:
    """Let the processes work, restart the writer, sample and compare, as long as it is asked for."""
    while True:
        share = seen.steps / options.steps if options.steps else seen.elapsed / (60 * options.minutes)
        if schedule.due("restart", share):
            children[0] = _restart(children[0], writer, seen)
            tell(_said(seen, share, "restarted"))
        if schedule.due("sample", share):
            seen.samples.append(_sample(children, location, seen) | {"share": share})
            tell(_said(seen, share, "running"))
        if schedule.due("check", share):
            children[0].ask("check")
            _until(children[0], "checked", seen)
        if share >= 1:
            break
        if (said := children[0].next(_ANSWERING_SECONDS)) is None:
            raise HeadraceError(
                f"The writer has said nothing for {_ANSWERING_SECONDS:.0f} seconds.",
                way_out="Run it with fewer processes beside it; if it hangs, report it.",
            )
        seen.note(said)


def _until(child: Child, key: str, seen: _Run) -> dict[str, Any]:
    """Wait until a process says something with a key; note what it says before."""
    deadline = time.monotonic() + _OPENING_SECONDS
    while time.monotonic() < deadline:
        said = child.next(1.0)
        if said is not None:
            seen.note(said)
            if key in said:
                return said
    raise HeadraceError(
        f"A process of the benchmark did not come to {key!r} within {_OPENING_SECONDS:.0f} seconds.",
        way_out="Run it with fewer processes beside it.",
    )


def _restart(old: Child, new: Callable[[], Child], seen: _Run) -> Child:
    """End the writer, cleanly or not, and have another one go on with what is there."""
    how = "killed" if len(seen.restarts) % 2 == 0 else "stopped"
    if how == "killed":
        old.kill()
    else:
        old.ask("stop")
        _until(old, "closed", seen)
        old.stop()
    started = time.monotonic()
    child = new()
    opened = _until(child, "opened", seen)
    if opened["opened"] < seen.newest:
        seen.wrong.append(f"step {seen.newest} was told of, and after the writer was {how} it is {opened['opened']}")
    _until(child, "ready", seen)
    seen.restarts.append({"how": how, "seconds": time.monotonic() - started, "minute": seen.elapsed / 60})
    return child


def _sample(children: list[Child], location: Path, seen: _Run) -> dict[str, float]:
    writer, reader = children
    while (said := reader.next(0.001)) is not None:
        seen.reads += "read" in said
        if "wrong" in said:
            seen.wrong.append(said["wrong"])
    writer.ask("sample")
    alive = _until(writer, "java", seen)["java"]
    taken, size, files = writer.taken(), 0, 0
    for folder, _, names in os.walk(location):
        for name in names:
            try:
                size += os.stat(os.path.join(folder, name)).st_size
            except OSError:
                continue  # removed meanwhile
            files += 1
    java = [one for one in taken if one.command == "java"]
    # Spark ends workers that are idle for a minute, and makes new ones; one process that forks them is always there.
    workers = sorted(one.private for one in taken[1:] if "python" in one.command)[1:]
    found = {
        "minute": seen.elapsed / 60,
        "driver": taken[0].private / _MB,
        "java": sum(one.private for one in java) / _MB,
        "java alive": alive / _MB,
        "reader": reader.taken()[0].private / _MB,
        "location": size / _MB,
        "files": float(files),
        "descriptors": float(sum(one.descriptors for one in taken)),
        "threads": float(sum(one.threads for one in taken)),
    }
    if workers:
        found["worker"] = workers[-1] / _MB
    if seen.times:
        step, sort = statistics.median(seen.times), statistics.median(seen.references)
        found |= {"step": 1e3 * step, "step / sort": step / sort}
        seen.times, seen.references = [], []
    return found


def _said(seen: _Run, share: float, what: str) -> str:
    last = seen.samples[-1] if seen.samples else {}
    shown = ", ".join(
        f"{one.name} {last[one.name]:,.0f} {one.unit}".strip() for one in MEASURES[:9] if one.name in last
    )
    return f"{share:.0%}, {what}: {seen.steps:,} turns, {len(seen.wrong)} wrong; {shown}"


def _result(options: argparse.Namespace, seen: _Run) -> dict[str, Any]:
    ended = seen.samples[-1]["minute"] if seen.samples else 0.0
    begin = max([ended / 2, *(restart["minute"] for restart in seen.restarts)])
    later = [sample for sample in seen.samples if sample["minute"] > begin]
    results: list[dict[str, Any]] = []
    for measure in MEASURES:
        own = [(sample["minute"], sample[measure.name]) for sample in later if measure.name in sample]
        row: dict[str, Any] = {"system": "headrace", "case": measure.name, "unit": measure.unit, "about": measure.about}
        if len(own) < 2:
            results.append(row | {"samples": len(own)})
            continue
        found = trend(measure, *zip(*own, strict=True))
        row |= {"samples": len(own), "median": found.median, "growth": found.growth, "tolerance": found.tolerance}
        if found.grows:
            row["wrong"] = f"{measure.name} grows by {found.growth:,.1f} {measure.unit}".strip()
        results.append(row)
    results += [{"system": "headrace", "case": "answers", "wrong": wrong} for wrong in seen.wrong]
    config = {name: value for name, value in vars(options).items() if name not in ("location", "plots")}
    out: dict[str, Any] = {
        "bench": "soak",
        "config": config,
        "results": results,
        "ratios": {},
        "turns": dict(seen.kinds),
        "steps": seen.newest,
        "minutes": ended,
        "judged_from_minute": begin,
        "restarts": seen.restarts,
        "answers": seen.answers,
        "reads": seen.reads,
        "samples": seen.samples,
    }
    if options.plots is not None:
        out["plots"] = [str(path) for path in save_plot(options.plots, out, MEASURES)]
    return out


def table(result: dict[str, Any]) -> Group:
    """Return the tables that show a result to people."""
    turns = sum(result["turns"].values())
    shown = Table(title=f"soak: {result['minutes']:,.0f} minutes, {turns:,} turns, {result['steps']:,} steps")
    for column in ("", ">median", ">rises by", ">may rise by", "", "what it is"):
        shown.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
    for row in result["results"]:
        if "median" in row:
            numbers = [f"{row[key]:,.1f} {row['unit']}".strip() for key in ("median", "growth", "tolerance")]
            shown.add_row(row["case"], *numbers, "GROWS" if "wrong" in row else "flat", row["about"])
        elif "about" in row:
            shown.add_row(row["case"], "", "", "", "too few samples", row["about"])
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(result["turns"].items()))
    ends = [restart["how"] for restart in result["restarts"]]
    wrong = [row["wrong"] for row in result["results"] if row["case"] == "answers"]
    lines = [
        f"turns: {kinds}",
        f"the writer was killed {ends.count('killed')} times and stopped {ends.count('stopped')} times",
        f"{result['answers']:,} answers were compared with Spark's, {result['reads']:,} were read beside",
        f"{len(wrong)} wrong",
        *wrong[:20],
    ]
    return Group(shown, *(Text(line) for line in lines))
