"""Another number of buckets: the entries of an arrangement move to the buckets in which they lie from then on.

All entries of a key lie in one bucket, before and after. So the runs of one bucket are summed, and the sum is cut up by
the new buckets of its entries, piece by piece. A share of the work is one bucket of a large arrangement, or a small
arrangement as a whole; shares need nothing of each other, so threads or tasks do them side by side. Nothing is taken
away: the new runs count once a commit names them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from math import gcd

import numpy as np

from headrace.relation import kernels, runfile
from headrace.relation.residence import Residence
from headrace.relation.run import Run, merge
from headrace.relation.runset import AnyRun
from headrace.rings import Group
from headrace.runtime.location import Location
from headrace.runtime.openruns import OPEN
from headrace.runtime.program import BucketResult, is_table
from headrace.runtime.record import PENDING, RECENT, BucketState, RunRef
from headrace.runtime.runwriter import RunWriter, pieces_of, whole_sum

States = Mapping[int, BucketState]
TOGETHER = 1 << 16  # entries of an arrangement whose buckets are not worth a share of their own
_STREAMS = 64  # files that a share writes at a time
_WAITING_ROWS = 1 << 18  # entries of changes that wait which are moved at a time
_HELD_BYTES = 1 << 26  # what a share holds in memory of short runs


@dataclass(frozen=True)
class Relocation:
    """An arrangement that gets other buckets.

    Parameters
    ----------
    residence : in which bucket each entry lies from now on. None: bucket b becomes a part of bucket b modulo the new
        number, as is right if that divides the old one, or if any bucket will do.
    """

    arrangement: str
    ring: Group
    states: States
    residence: Residence | None

    @property
    def entries(self) -> int:
        return sum(ref.rows for state in self.states.values() for ref in state.runs)


@dataclass(frozen=True)
class Share:
    """A part of the work: one bucket of an arrangement, or all of it (`bucket` is None)."""

    relocation: Relocation
    bucket: int | None


def batches_of(relocations: Iterable[Relocation], before: int) -> list[list[Share]]:
    """The shares that are done one after the other, with files in common; tables and views have none in common."""
    small: dict[bool, list[Share]] = defaultdict(list)
    large: list[list[Share]] = []
    for one in relocations:
        if not one.entries:
            continue
        if one.residence is not None and one.entries <= TOGETHER:
            small[is_table(one.arrangement)].append(Share(one, None))
            continue
        # What small steps wrote has entries of any bucket.
        some = range(before) if one.states.get(RECENT, BucketState()).runs else one.states
        large += [[Share(one, bucket)] for bucket in some]
    return [*large, *small.values()]


@dataclass(frozen=True)
class Rebucketing:
    """Moves entries from some buckets to others.

    Parameters
    ----------
    version : of the commit that it leads to.
    names : gets the names of the files that this process writes.
    """

    root: str
    version: int
    before: int
    after: int
    fsync: bool
    names: set[str] | None = None

    def done(self, shares: Sequence[Share]) -> BucketResult:
        """The runs that some shares lead to, per new bucket."""
        result = BucketResult()
        with RunWriter(Location(self.root), self.version, fsync=self.fsync, names=self.names) as writer:
            for share in shares:
                one = share.relocation
                found: dict[int, list[tuple[RunRef, int]]] = defaultdict(list)
                for bucket, ref, live in self._moved(share, writer):
                    found[bucket].append((ref, live))
                states = {b: BucketState(tuple(r for r, _ in own), sum(n for _, n in own)) for b, own in found.items()}
                add_states(result, {one.arrangement: states})
        return result

    def _moved(self, share: Share, writer: RunWriter) -> Iterator[tuple[int, RunRef, int]]:
        """The new runs of a share: bucket, run, and how many entries of it count as alive."""
        one, bucket = share.relocation, share.bucket
        runs: list[AnyRun] = (
            list(OPEN.everything(self.root, one.states)) if bucket is None else OPEN.of(self.root, one.states, bucket)
        )
        if one.arrangement.startswith(PENDING):
            # An entry that is zero waits like any other: its group was touched. So nothing is summed here.
            for run in runs:
                for start in range(0, run.rows, _WAITING_ROWS):
                    for target, part in self._apart(share, run.slice(start, min(run.rows, start + _WAITING_ROWS))):
                        yield target, writer.add(part), part.rows
        elif runs:
            yield from self._summed(share, runs, writer)

    def _summed(self, share: Share, runs: Sequence[AnyRun], writer: RunWriter) -> Iterator[tuple[int, RunRef, int]]:
        ring, targets = share.relocation.ring, self._targets(share)
        size = sum(ref.bytes for ref in self._refs(share))
        if size <= _HELD_BYTES or size <= runfile.SMALL * len(targets):
            # Runs that are short, or all together little.
            most = max(1, len(targets) * _HELD_BYTES // max(_HELD_BYTES, size))
            for some in _groups(targets, most):
                held: dict[int, list[Run]] = defaultdict(list)
                # What fits into memory is summed at once, so that nothing has to be put together again.
                for piece in [whole_sum(ring, runs)] if size <= _HELD_BYTES else pieces_of(ring, runs):
                    for target, part in self._apart(share, piece):
                        if target in some:
                            held[target].append(part)
                for target, parts in held.items():
                    run = parts[0] if len(parts) == 1 else merge(ring, parts)
                    yield target, writer.add(run), _live(share, run)
            return
        width = max(run.words.shape[0] for run in runs)
        for some in _groups(targets, _STREAMS):
            with ExitStack() as stack:
                streams = {target: stack.enter_context(writer.stream(width)) for target in some}
                live = dict.fromkeys(some, 0)
                for piece in pieces_of(ring, runs):
                    for target, part in self._apart(share, piece):
                        if target in streams:
                            streams[target].add(part)
                            live[target] += _live(share, part)
                for target, stream in streams.items():
                    if stream.rows:
                        yield target, writer.finish(stream), live[target]

    def _apart(self, share: Share, piece: Run) -> Iterator[tuple[int, Run]]:
        """The entries of a piece by their new buckets."""
        if not piece.rows:
            return
        residence = share.relocation.residence
        if residence is None:
            assert share.bucket is not None
            yield share.bucket % self.after, piece
            return
        codes = residence.of(piece.words)
        order, starts = np.empty(piece.rows, np.int64), np.empty(self.after + 1, np.int64)
        kernels.split_by(codes, self.after, order, starts)
        for target, (start, stop) in enumerate(pairwise(starts.tolist())):
            if start < stop:
                yield target, piece if stop - start == piece.rows else piece.take(order[start:stop])

    def _targets(self, share: Share) -> list[int]:
        """The new buckets that entries of a share can lie in."""
        residence, bucket = share.relocation.residence, share.bucket
        if residence is None:
            assert bucket is not None
            return [bucket % self.after]
        if residence.lead is None:
            return [residence.bucket]
        if bucket is None:
            return list(range(self.after))
        # Buckets are remainders of one number per key.
        step = gcd(self.before, self.after)
        return list(range(bucket % step, self.after, step))

    def _refs(self, share: Share) -> Iterator[RunRef]:
        states = share.relocation.states
        some = states.values() if share.bucket is None else [states.get(share.bucket, BucketState())]
        return (ref for state in some for ref in state.runs)


def add_states(result: BucketResult, states: Mapping[str, Mapping[int, BucketState]]) -> None:
    """Add runs to those that a result has in the same buckets."""
    for name, own in states.items():
        there = result.buckets.setdefault(name, {})
        for bucket, state in own.items():
            known = there.get(bucket, BucketState())
            there[bucket] = BucketState(known.runs + state.runs, known.live + state.live)


def _groups(targets: Sequence[int], most: int) -> Iterator[Sequence[int]]:
    return (targets[start : start + most] for start in range(0, len(targets), most))


def _live(share: Share, run: Run) -> int:
    """A table counts its rows, of which some may be there twice; all others count their entries."""
    return int(run.payload[0].sum()) if is_table(share.relocation.arrangement) else run.rows
