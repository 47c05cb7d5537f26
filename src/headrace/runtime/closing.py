"""Closing windows at the end of a step: a pass over the buckets of a view, after its rows have been added.

How far the watermark has come is known only when all rows of a step have been seen, wherever they were. So this is a
pass of its own, over state that is small by nature: the windows that are still open.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.operators.closed import Closing, close
from headrace.relation.run import Run
from headrace.runtime.openruns import OPEN
from headrace.runtime.program import BucketResult, Program, final_arrangement, view_arrangement
from headrace.runtime.record import BucketState, RunRef
from headrace.runtime.runwriter import RunWriter
from headrace.runtime.tasks import Held, store


@dataclass(frozen=True)
class ClosingTask:
    """Which groups of a view to close: those whose windows are over at the time `until`, in microseconds."""

    view: str
    closing: Closing
    until: int
    step: int


def close_bucket(program: Program, task: ClosingTask, bucket: int) -> BucketResult:
    """Close the groups of one bucket; its runs may be merged into fewer, smaller ones."""
    with program.writer() as writer:
        return _close_bucket(program, task, bucket, writer)


def _close_bucket(program: Program, task: ClosingTask, bucket: int, writer: RunWriter) -> BucketResult:
    layout, result = task.closing.layout, BucketResult()
    names = {part: view_arrangement(task.view, part) for part in layout.arrangements}
    before = {part: program.states(name).get(bucket, BucketState()) for part, name in names.items()}
    state = {part: OPEN.opened(program.root, own) for part, own in before.items()}
    closed = close(task.closing, state, task.until, task.step)
    if closed is None:
        return result
    for part, rests in closed.rests.items():
        if rests:
            kept = _replaced(writer, before[part], rests)
            live = before[part].live - closed.gone[part] if kept else 0
            result.buckets.setdefault(names[part], {})[bucket] = BucketState(kept, live)
    if closed.groups.rows:
        final = final_arrangement(task.view)
        store(writer, Held.of(program, final, bucket), layout.ring, closed.groups, closed.groups.rows, result)
        result.closed[task.view] = closed.groups.rows
    return result


def _replaced(writer: RunWriter, before: BucketState, rests: dict[int, Run]) -> tuple[RunRef, ...]:
    kept = []
    for i, ref in enumerate(before.runs):
        if i not in rests:
            kept.append(ref)
        elif rests[i].rows:
            kept.append(writer.add(rests[i]))
    return tuple(kept)
