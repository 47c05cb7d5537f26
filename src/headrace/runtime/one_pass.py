"""Steps of few rows change all buckets in one pass, as if the buckets were one: their cost does not depend on how many.

Such a step adds one run per arrangement, with entries of all buckets, to the arrangement's *recent* runs (`RECENT`
stands for a bucket in the log). Whoever reads one bucket takes its share of the recent runs, because each entry has the
number of its bucket with it. When the recent runs have become many entries, or when a step goes from bucket to bucket,
they are moved into the buckets first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from headrace.relation.arrangement import growth
from headrace.relation.residence import Residence, first_word
from headrace.relation.run import Run, merge
from headrace.rings import Group
from headrace.runtime.log import RECENT, BucketState
from headrace.runtime.openruns import OPEN
from headrace.runtime.program import BucketResult, Program, is_table, table_arrangement, view_arrangement
from headrace.runtime.runwriter import RunWriter, discard
from headrace.runtime.tasks import Held, store

# A step of fewer rows, or of fewer rows per bucket, is done in one pass: going from bucket to bucket would cost more.
MOST_ROWS, MOST_ROWS_PER_BUCKET = 20_000, 4_000
# Recent runs move into the buckets when they have this many entries, in all and per bucket, and are this share of all
# entries. Until then, they cost the reader of a bucket a look at the bucket of each entry.
RECENT_ENTRIES, RECENT_ENTRIES_PER_BUCKET, RECENT_SHARE = 1 << 16, 1 << 12, 16


def passes(program: Program, rows: int) -> list[Program]:
    """The passes of a step that changes so many rows: one over all buckets at once, and one from bucket to bucket.

    The second is only for views that cannot be kept otherwise. A step of many rows has no other.
    """
    if program.buckets == 1 or rows >= max(MOST_ROWS, MOST_ROWS_PER_BUCKET * program.buckets):
        return [program]
    residences: dict[str, Residence] = {}
    at_once, others = [], []
    for task in program.tables:
        residences[table_arrangement(task.name)] = Residence(program.buckets, first_word)
        views = []
        for view in task.views:
            way = view.kernel.in_one_pass
            if way is not None:
                views.append(replace(view, kernel=way.kernel))
                residences |= {view_arrangement(view.name, part): found for part, found in way.residences.items()}
        at_once.append(replace(task, views=tuple(views)))
        left = tuple(view for view in task.views if view.kernel.in_one_pass is None)
        if left:
            others.append(replace(task, views=left, store=False, views_only=True))
    first = replace(program, buckets=1, tables=tuple(at_once), residences=residences)
    return [first, replace(program, tables=tuple(others))] if others else [first]


@contextmanager
def settled(program: Program, result: BucketResult, *, due_only: bool = False) -> Iterator[Program]:
    """The program of a step, after recent runs have moved into the buckets: all of them, or those that are due.

    A step that goes from bucket to bucket is large beside all of them; if they stayed, each of its tasks would have to
    look for its share. The caller adds what the step does to `result`. Files of moved runs that the step has merged
    away again are removed, and so are all of them if the step fails.
    """
    if not program.judge_only:
        for name, ring in program.rings.items():
            recent = program.states(name).get(RECENT, BucketState())
            if recent.runs and (not due_only or _is_due(program, name, recent)):
                with program.writer() as writer:
                    result.add(spread(program, writer, name, ring))
    # Of the files that the buckets have now, those are new that no state before the step has.
    moved = result.files() - {ref.name for b in program.state.values() for state in b.values() for ref in state.runs}
    try:
        yield replace(program, state=program.state_after(result))
    except BaseException:
        discard(program.location, moved)
        raise
    discard(program.location, moved - result.files())


def _is_due(program: Program, name: str, recent: BucketState) -> bool:
    entries = sum(ref.rows for ref in recent.runs)
    if entries <= max(RECENT_ENTRIES, RECENT_ENTRIES_PER_BUCKET * program.buckets):
        return False
    everything = sum(ref.rows for state in program.states(name).values() for ref in state.runs)
    return entries * RECENT_SHARE > everything


def spread(program: Program, writer: RunWriter, name: str, ring: Group) -> BucketResult:
    """Move the recent runs of an arrangement into the buckets."""
    result, states, entries = BucketResult(), program.states(name), not is_table(name)
    shares: dict[int, list[Run]] = defaultdict(list)
    for run in OPEN.opened(program.root, states.get(RECENT, BucketState())):
        for bucket, share in run.by_bucket(program.buckets).items():
            shares[bucket].append(share)
    for bucket, runs in sorted(shares.items()):
        own = states.get(bucket, BucketState())
        held = Held(name, bucket, own, OPEN.opened(program.root, own))
        delta = merge(ring, runs)
        more = growth(ring, held.runs, delta, sample_size=None) if entries else int(delta.payload[0].sum())
        store(writer, held, ring, delta, more, result, entries=entries)
    result.buckets.setdefault(name, {})[RECENT] = BucketState()
    return result
