"""Flushing: what waits at the inlets of a view goes on, through the same stages that a step runs through."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from headrace.runtime import inline
from headrace.runtime.one_pass import is_small, settled
from headrace.runtime.pending import delivered, emptied, in_one_pass, waiting_rows
from headrace.runtime.program import BucketResult, Program
from headrace.runtime.stages import Jobs, run_later_stages


def flush(program: Program, threads: int, jobs: Callable[[Program], Jobs] | None = None) -> BucketResult:
    """Flush the inlets that a program names.

    Parameters
    ----------
    threads : how many buckets the driver does at the same time.
    jobs : makes jobs for what is much for the driver.
    """
    rows = sum(waiting_rows(program, view, flush.flushed) for view, flush in program.flushes.items())
    at_once = in_one_pass(program) if is_small(program, rows, threads) else None
    threads = threads if rows >= inline.WORTH_THREADS else 1
    result = BucketResult()
    with settled(program, result) if at_once is None else nullcontext(at_once) as ready:
        result.add(emptied(ready))
        work = BucketResult(parcels=list(delivered(ready)))
        by_jobs = None if jobs is None or at_once is not None else jobs(ready)
        done = run_later_stages(ready, work, by_jobs, threads)
        result.add(done)
    return result
