"""The stages after the first: what one stage sends on is delivered to buckets of the next, until nothing is left.

A stage's output is mostly small (changed keys of a view, summed), so it travels in the tasks' results, and the driver
adds it up itself, by threads. Buckets that get many rows are done by the tasks of another job; what is much for the
driver travels to them in files of the step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa

from headrace.operators.feed_rows import fed_rows, sent_on
from headrace.plan.tree import FeedId
from headrace.relation import disk, runfile
from headrace.relation.run import Run, merge
from headrace.relation.storedrun import StoredRun
from headrace.rings import COUNT
from headrace.runtime.program import BucketResult, Parcel, Program, Spilled, Waiting
from headrace.runtime.tasks import Pieces, reduce_stage

SPILL_ROWS = 1 << 16  # a task's output beyond this goes to files instead of to the driver
TASK_ROWS = 1 << 15  # what a bucket gets beyond this is worth a task
A = TypeVar("A")
B = TypeVar("B")


class Jobs(Protocol):
    """What a Spark job does for the later stages of a step, where there is much to do."""

    def run_stage(self, stage: int, parcels: list[Parcel]) -> BucketResult:
        """Deliver parcels to their buckets and run one stage there, in tasks."""
        ...

    def evaluated(self, view: str, feed: FeedId, parcels: list[Parcel]) -> list[Parcel]:
        """Have Catalyst evaluate a feed on parcels, in tasks."""
        ...


def run_later_stages(
    program: Program, result: BucketResult, jobs: Jobs | None = None, threads: int = 1
) -> BucketResult:
    """Run the stages that a result asks for; what is much for the driver is done by `jobs`, if these are given."""
    if not program.judge_only and not result.has_bad:
        result.parcels += _seeds(program)
    while result.parcels:
        stage = min(parcel.stage for parcel in result.parcels)
        now = [parcel for parcel in result.parcels if parcel.stage == stage]
        result.parcels = [parcel for parcel in result.parcels if parcel.stage != stage]
        now = _evaluated(program, now, jobs)
        large = _large(now) if jobs is not None else set()
        if jobs is not None and large:
            done = jobs.run_stage(stage, [parcel for parcel in now if parcel.bucket in large])
            done.elsewhere = sum(done.spent.values())
            result.add(done)
        rest = [parcel for parcel in now if parcel.bucket not in large]
        result.add(run_stage(program, stage, rest, threads))
        discard(rest)
    return result


def _large(parcels: list[Parcel]) -> set[int]:
    """The buckets that are worth a task."""
    rows: dict[int, int] = defaultdict(int)
    for parcel in parcels:
        rows[parcel.bucket] += parcel.rows
    return {bucket for bucket, count in rows.items() if count >= TASK_ROWS}


def _seeds(program: Program) -> list[Parcel]:
    """The changes that new views get before any row, as parcels for the second stage: the first has run by now."""
    return [
        Parcel(1, bucket, view, part, run, run.rows)
        for view, lifted in program.seeds.items()
        for bucket, parts in lifted.items()
        for part, run in parts.items()
    ]


def _evaluated(program: Program, parcels: list[Parcel], jobs: Jobs | None) -> list[Parcel]:
    """Have Catalyst evaluate the parcels whose feed only Spark can evaluate; the others stay as they are."""
    out: list[Parcel] = []
    waiting: dict[tuple[str, FeedId], list[Parcel]] = defaultdict(list)
    for parcel in parcels:
        feed = program.views[parcel.view].feed_of(parcel.part)
        if feed is None:
            out.append(parcel)
        else:
            waiting[parcel.view, feed].append(parcel)
    for (view, feed), arrived in waiting.items():
        if jobs is not None and sum(parcel.rows for parcel in arrived) >= TASK_ROWS:
            out += jobs.evaluated(view, feed, arrived)
            continue
        assert program.between is not None, "the driver runs the stages, and it has a session"
        given = fed_rows(program.views[view], feed, by_bucket(arrived))
        out += sent_parcels(program, view, feed, program.between.values(view, feed, given))
        discard(arrived)
    return out


def by_bucket(parcels: list[Parcel]) -> dict[int, Run]:
    """The changes that parcels of one part bring to each bucket."""
    runs: dict[int, list[Run]] = defaultdict(list)
    for parcel in parcels:
        runs[parcel.bucket].append(_opened(parcel))
    return {bucket: merge(COUNT, runs[bucket]) for bucket in sorted(runs)}


def sent_parcels(program: Program, view: str, feed: FeedId, evaluated: pa.Table) -> list[Parcel]:
    """Pack what a feed that was evaluated sends on."""
    sent = sent_on(program.views[view], feed, evaluated)
    return [Parcel(one.stage, one.bucket, view, one.part, one.run, one.run.rows) for one in sent]


def run_stage(program: Program, stage: int, parcels: Iterable[Parcel], threads: int = 1) -> BucketResult:
    """Deliver parcels to their buckets and run one stage there."""
    pieces: dict[int, Pieces] = defaultdict(Pieces)
    for parcel in parcels:
        pieces[parcel.bucket].runs[parcel.view, parcel.part].append(_opened(parcel))
    result = BucketResult()
    for done in each(lambda bucket: reduce_stage(program, stage, bucket, pieces.pop(bucket)), sorted(pieces), threads):
        if threads > 1:
            done.elsewhere = sum(done.spent.values())
        result.add(done)
    return result


def each(work: Callable[[A], B], items: Iterable[A], threads: int) -> Iterator[B]:
    """Apply a function per item, by threads if there are several; results are in the order of the items."""
    if threads == 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(work, items)


def spill(program: Program, parcels: list[Parcel]) -> list[Parcel]:
    """Write parcels to files if they are too large to send to the driver."""
    if sum(parcel.rows for parcel in parcels) <= SPILL_ROWS:
        return parcels
    location = program.location
    out = []
    for parcel in parcels:
        assert isinstance(parcel.run, Run)
        spilled = Spilled(program.root, location.new_name(program.version, ".run"))
        runfile.write(parcel.run, spilled.path)
        out.append(Parcel(parcel.stage, parcel.bucket, parcel.view, parcel.part, spilled, parcel.rows))
    return out


def discard(parcels: Iterable[Parcel]) -> None:
    """Remove the files of parcels that have been delivered."""
    disk.tidy([parcel.run.path for parcel in parcels if isinstance(parcel.run, Spilled)])


def _opened(parcel: Parcel) -> Run:
    if isinstance(parcel.run, Run):
        return parcel.run
    found = parcel.run.opened() if isinstance(parcel.run, Waiting) else runfile.read(parcel.run.path)
    return found if isinstance(found, Run) else in_memory(found)


def in_memory(stored: StoredRun) -> Run:
    """Read a whole run, verified."""
    stored.check()
    payload = tuple(np.ascontiguousarray(column) for column in stored.payload)
    return Run(stored.words, payload, stored.values)
