"""Steps of few rows change all buckets in one pass, as if the buckets were one: their cost does not depend on how many.

Such a step adds one run per arrangement, with entries of all buckets, to the arrangement's *recent* runs (`RECENT`
stands for a bucket in the log). Whoever reads one bucket takes its share of the recent runs, because each entry has the
number of its bucket with it. When the recent runs have become many entries, they move into the buckets beside later
steps (`merges`); a step that goes from bucket to bucket moves them first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from headrace.relation.residence import Residence, first_word
from headrace.rings import Group
from headrace.runtime.merges import Kind, Merge, Merging
from headrace.runtime.pending import followers_in_one_pass, residences_of
from headrace.runtime.program import BucketResult, Program, view_arrangement
from headrace.runtime.record import RECENT, BucketState
from headrace.runtime.runwriter import discard

# A step of at most so many rows (divided by the cores, or per bucket) is done in one pass: going from bucket to bucket
# would cost more. That uses all cores, though, where one pass uses one per table and view at best.
MOST_ROWS, MOST_ROWS_PER_BUCKET = 200_000, 4_000


def is_small(program: Program, rows: int, threads: int) -> bool:
    """Whether so many rows are done in one pass over all buckets."""
    return program.buckets > 1 and rows <= most_rows(program.buckets, threads)


def most_rows(buckets: int, threads: int) -> int:
    """The most rows that are done in one pass over so many buckets."""
    return max(MOST_ROWS // threads, MOST_ROWS_PER_BUCKET * buckets)


def passes(program: Program, rows: int, threads: int = 1) -> list[Program]:
    """The passes of a step that changes so many rows: one over all buckets at once, and one from bucket to bucket.

    The second is only for views that cannot be kept otherwise. A step of many rows has no other.
    """
    if not is_small(program, rows, threads):
        return [program]
    residences: dict[str, Residence] = {}
    at_once, others = [], []
    for task in program.tables:
        residences |= dict.fromkeys(task.arrangements, Residence(program.buckets, first_word))
        views, left = [], []
        for view in task.views:
            way = view.kernel.in_one_pass
            held = residences_of(view.name, view.kernel) if view.waits else {}
            if way is None or held is None:
                left.append(view)
                continue
            views.append(replace(view, kernel=way.kernel))
            residences |= held
            residences |= {view_arrangement(view.name, part): found for part, found in way.residences.items()}
        at_once.append(replace(task, views=tuple(views)))
        if left:
            others.append(replace(task, views=tuple(left), store=False, views_only=True))
    followers, where = followers_in_one_pass(program)
    residences |= where
    first = replace(program, buckets=1, tables=tuple(at_once), residences=residences, followers=followers)
    return [first, replace(program, tables=tuple(others), followers={})] if others else [first]


@contextmanager
def settled(program: Program, result: BucketResult) -> Iterator[Program]:
    """The program of a step, after all recent runs have moved into the buckets.

    A step that goes from bucket to bucket is large beside all of them; if they stayed, each of its tasks would have to
    look for its share. The caller adds what the step does to `result`. Files of moved runs that the step has merged
    away again are removed, and so are all of them if the step fails.
    """
    if not program.judge_only:
        for name, ring in program.rings.items():
            result.add(moved(program, name, ring))
    # Of the files that the buckets have now, those are new that no state before the step has.
    files = result.files() - {ref.name for b in program.state.values() for state in b.values() for ref in state.runs}
    try:
        yield replace(program, state=program.state_after(result))
    except BaseException:
        discard(program.location, files)
        raise
    discard(program.location, files - result.files())


def moved(program: Program, name: str, ring: Group) -> BucketResult:
    """Move the recent runs of an arrangement, if it has some, into the buckets."""
    states = program.states(name)
    recent = states.get(RECENT, BucketState())
    if not recent.runs:
        return BucketResult()
    move = Merge(name, RECENT, recent.runs, moves=True)
    buckets = Merging(program.location, program.buckets, program.writer).run(move, Kind(ring), states).applied(states)
    assert buckets is not None, "the recent runs are still there"
    return BucketResult(buckets={name: buckets})
