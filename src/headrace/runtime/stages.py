"""The stages after the first: what one stage sends on is delivered to buckets of the next, until nothing is left.

A stage's output is small (changed keys of a view, summed), so it travels in the tasks' results, and the driver adds it
up itself. Where it is not small, tasks leave it in files of the step, and the next stage is a job of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from headrace.relation import runfile
from headrace.relation.run import Run
from headrace.runtime.location import Location
from headrace.runtime.program import BucketResult, Parcel, Program
from headrace.runtime.tasks import Pieces, reduce_stage

SPILL_ROWS = 1 << 16  # a task's output beyond this goes to files instead of to the driver
Job = Callable[[int, list[Parcel]], BucketResult]


def run_later_stages(program: Program, result: BucketResult, job: Job | None = None) -> BucketResult:
    """Run the stages that a result asks for; a stage whose input is in files needs a job, if there can be one."""
    while result.parcels:
        stage = min(parcel.stage for parcel in result.parcels)
        now = [parcel for parcel in result.parcels if parcel.stage == stage]
        result.parcels = [parcel for parcel in result.parcels if parcel.stage != stage]
        if job is not None and any(isinstance(parcel.run, str) for parcel in now):
            result.add(job(stage, now))
        else:
            result.add(run_stage(program, stage, now))
    return result


def run_stage(program: Program, stage: int, parcels: Iterable[Parcel]) -> BucketResult:
    """Deliver parcels to their buckets and run one stage there."""
    pieces: dict[int, Pieces] = defaultdict(Pieces)
    for parcel in parcels:
        pieces[parcel.bucket].runs[parcel.view, parcel.part].append(_opened(parcel))
    result = BucketResult()
    for bucket in sorted(pieces):
        result.add(reduce_stage(program, stage, bucket, pieces[bucket]))
    return result


def spill(program: Program, parcels: list[Parcel]) -> list[Parcel]:
    """Leave parcels in files if they are too much to send to the driver."""
    if sum(parcel.rows for parcel in parcels) <= SPILL_ROWS:
        return parcels
    location = Location(program.root)
    out = []
    for parcel in parcels:
        assert isinstance(parcel.run, Run)
        path = location.batches / location.new_name(program.version, ".run")
        runfile.write(parcel.run, path)
        out.append(Parcel(parcel.stage, parcel.bucket, parcel.view, parcel.part, str(path), parcel.rows))
    return out


def discard(parcels: Iterable[Parcel]) -> None:
    """Remove the files of parcels that have been delivered."""
    for parcel in parcels:
        if isinstance(parcel.run, str):
            Path(parcel.run).unlink(missing_ok=True)


def _opened(parcel: Parcel) -> Run:
    if isinstance(parcel.run, Run):
        return parcel.run
    return in_memory(runfile.read(Path(parcel.run)))


def in_memory(stored: runfile.StoredRun) -> Run:
    """Read a whole run, verified."""
    stored.check()
    payload = tuple(np.ascontiguousarray(column) for column in stored.payload)
    return Run(stored.words, payload, stored.values)
