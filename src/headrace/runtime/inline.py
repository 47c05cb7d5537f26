"""The inline executor: runs a step in the calling process, without a Spark job.

It is what small steps use, because a job costs more than they do, and what tests use to run everything in milliseconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from headrace.relation.change import ChangeBatch
from headrace.runtime.program import BucketResult, Program
from headrace.runtime.tasks import Pieces, map_rows, reduce_bucket


def run_inline(program: Program, batches: Mapping[str, ChangeBatch]) -> BucketResult:
    """Run a program over batches in memory; where a view needs Catalyst, its columns come with the rows."""
    result = BucketResult()
    pieces: dict[int, Pieces] = defaultdict(Pieces)
    for task in program.tables:
        batch = batches[task.name]
        mapped = map_rows(program, task, batch.rows, batch.diff, None)
        result.bad += mapped.bad
        mapped.into(pieces)
    if result.bad and not program.judge_only:
        return result
    for bucket in sorted(pieces):
        result.add(reduce_bucket(program, bucket, pieces[bucket]))
    return result
