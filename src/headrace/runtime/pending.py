"""Changes that wait: a view with a goal need not follow every step, so its changes are held at its inlets.

What waits at an inlet is an arrangement like any other: runs in the buckets of the operator, committed with the step.
Holding a change looks nothing up, since changes of the same key just add up. To flush an inlet is to deliver what waits
there, as if it had just come, and to leave the inlet empty. A flush is a program without rows, so whatever runs the
later stages of a step runs a flush.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from headrace.operators.kernel import Inlet, ViewKernel
from headrace.relation.arrangement import runs_to_merge
from headrace.relation.residence import Residence
from headrace.relation.run import Run, merge
from headrace.relation.runset import AnyRun
from headrace.runtime.openruns import OPEN
from headrace.runtime.program import (
    BucketResult,
    Flush,
    Parcel,
    Program,
    Waiting,
    pending_arrangement,
    view_arrangement,
)
from headrace.runtime.record import RECENT, BucketState
from headrace.runtime.runwriter import RunWriter

_SMALL = 1 << 15  # bytes of a run that is merged with others, so that many small steps do not leave as many runs


def hold(
    program: Program, view: str, part: str, bucket: int, runs: Iterable[Run], writer: RunWriter, result: BucketResult
) -> None:
    """Add changes to those that wait at an inlet."""
    name, inlet = pending_arrangement(view, part), program.views[view].inlets[part]
    come = [run for run in runs if run.rows]
    if not come or (inlet.copied and bucket):
        return
    residence = (program.residences or {}).get(name)
    at = bucket if residence is None else RECENT
    before = result.buckets.get(name, {}).get(at) or program.states(name).get(at, BucketState())
    # An entry that is zero stays: it says that a group was touched, whose least value may be another now.
    delta = merge(inlet.ring, come, keep_zeros=True)
    small = [i for i, ref in enumerate(before.runs) if ref.bytes <= _SMALL]
    sizes = [before.runs[i].rows for i in small]
    due = [small[i] for i in runs_to_merge(sizes, delta.rows, sum(sizes) + delta.rows)]
    if due:
        others: list[AnyRun] = [OPEN.one(program.root, before.runs[i]) for i in due]
        delta = merge(inlet.ring, [*others, delta], keep_zeros=True)  # type: ignore[list-item]
    kept = tuple(ref for i, ref in enumerate(before.runs) if i not in due)
    added = writer.add(delta, None if residence is None else residence.of(delta.words))
    runs_after = (*kept, added)
    result.buckets.setdefault(name, {})[at] = BucketState(runs_after, sum(ref.rows for ref in runs_after))


def waiting_rows(program: Program, view: str, parts: Iterable[str]) -> int:
    """How many entries wait at some inlets."""
    states = (program.states(pending_arrangement(view, part)).values() for part in parts)
    return sum(ref.rows for own in states for state in own for ref in state.runs)


def delivered(program: Program) -> Iterator[Parcel]:
    """What waits at the inlets that a flush empties, on its way to the operators there."""
    for view, flush in program.flushes.items():
        for part in sorted(flush.flushed):
            inlet = flush.kernel.inlets[part]
            states = program.states(pending_arrangement(view, part))
            if program.residences is not None:
                runs = [(0, Waiting(program.root, ref)) for state in states.values() for ref in state.runs]
            else:
                runs = [
                    found for bucket in range(program.buckets) for found in _of_bucket(program, inlet, states, bucket)
                ]
            for bucket, run in runs:
                yield Parcel(inlet.stage, bucket, view, part, run, run.ref.rows)


def _of_bucket(
    program: Program, inlet: Inlet, states: Mapping[int, BucketState], bucket: int
) -> Iterator[tuple[int, Waiting]]:
    home = 0 if inlet.copied else bucket
    for ref in states.get(home, BucketState()).runs:
        yield bucket, Waiting(program.root, ref)
    for ref in states.get(RECENT, BucketState()).runs:
        yield bucket, Waiting(program.root, ref, home)


def emptied(program: Program) -> BucketResult:
    """The inlets that a flush leaves empty."""
    out = BucketResult()
    for view, flush in program.flushes.items():
        for part in flush.flushed:
            name = pending_arrangement(view, part)
            changed = {bucket: BucketState() for bucket, state in program.states(name).items() if state.runs}
            if changed:
                out.buckets[name] = changed
    return out


def residences_of(view: str, kernel: ViewKernel) -> dict[str, Residence] | None:
    """Where entries lie that wait at the inlets of a view; None if the entries of one of them do not tell."""
    out = {}
    for part in (part for parts in kernel.holds.values() for part in parts):
        residence = kernel.inlets[part].residence
        if residence is None:
            return None
        out[pending_arrangement(view, part)] = residence
    return out


def in_one_pass(program: Program) -> Program | None:
    """A flush that changes all buckets at once; None if one of its views is kept bucket by bucket."""
    flushes: dict[str, Flush] = {}
    residences: dict[str, Residence] = {}
    for view, flush in program.flushes.items():
        way, waiting = flush.kernel.in_one_pass, residences_of(view, flush.kernel)
        if way is None or waiting is None:
            return None
        flushes[view] = replace(flush, kernel=way.kernel)
        residences |= waiting
        residences |= {view_arrangement(view, part): found for part, found in way.residences.items()}
    followers, where = followers_in_one_pass(program)
    return replace(program, buckets=1, flushes=flushes, residences=residences | where, followers=followers)


def followers_in_one_pass(program: Program) -> tuple[dict[str, ViewKernel], dict[str, Residence]]:
    """The views that read shared subplans, each with one bucket, and where the entries lie that they may get."""
    followers, residences = {}, dict[str, Residence]()
    for name, kernel in program.followers.items():
        way, waiting = kernel.in_one_pass, residences_of(name, kernel) if name in program.patient else {}
        assert way is not None, "only views that are kept in one pass share subplans"
        assert waiting is not None, "and if they have goals, only those whose changes can wait in one pass"
        followers[name] = way.kernel
        residences |= waiting
        residences |= {view_arrangement(name, part): found for part, found in way.residences.items()}
    return followers, residences
