"""The inline executor: runs a step in the calling process, without a Spark job.

It is what small steps use, because a job costs more than they do, and what tests use to run everything in milliseconds.
The kernels let go of Python's lock, so a step of some size uses all cores by threads, a bucket each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from headrace.relation.change import ChangeBatch
from headrace.runtime.program import BucketResult, Program
from headrace.runtime.stages import run_later_stages
from headrace.runtime.tasks import Pieces, map_rows, reduce_bucket

_WORTH_THREADS = 20_000
A = TypeVar("A")
B = TypeVar("B")


def run_inline(program: Program, batches: Mapping[str, ChangeBatch], threads: int = 1) -> BucketResult:
    """Run a program over batches in memory; where a view needs Catalyst, its columns come with the rows."""
    result = BucketResult()
    pieces: dict[int, Pieces] = defaultdict(Pieces)
    if sum(len(batches[task.name]) for task in program.tables) < _WORTH_THREADS:
        threads = 1
    mapping = _each(
        lambda task: map_rows(program, task, batches[task.name].rows, batches[task.name].diff, None),
        program.tables,
        threads,
    )
    for mapped in mapping:
        result.bad += mapped.bad
        result.passed |= mapped.passed
        mapped.into(pieces)
    if result.bad and not program.judge_only:
        return result
    for done in _each(lambda bucket: reduce_bucket(program, bucket, pieces[bucket]), sorted(pieces), threads):
        result.add(done)
    return run_later_stages(program, result)


def _each(work: Callable[[A], B], items: Iterable[A], threads: int) -> list[B]:
    if threads == 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, items))
