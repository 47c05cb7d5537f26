"""Merges that steps owe: work that changes where entries lie and no answer, so that it can be done at any time.

A step adds runs, and leaves long runs as they are. Afterwards, and beside later steps, runs of one bucket become one,
and recent runs move into the buckets (`one_pass`). Such work reads a snapshot, writes new files, and ends as a
*replacement*: these runs for those. A replacement fits every later snapshot that still has the old runs, because the
state of an arrangement is the sum of its runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headrace.relation.arrangement import growth, owed
from headrace.relation.residence import Residence
from headrace.relation.run import Run
from headrace.relation.run import merge as summed
from headrace.rings import Group
from headrace.runtime.location import Location
from headrace.runtime.openruns import OPEN
from headrace.runtime.program import is_table
from headrace.runtime.record import PENDING, RECENT, BucketState, RunRef
from headrace.runtime.runwriter import RunWriter

States = Mapping[int, BucketState]
# Recent runs move into the buckets when they have this many entries, in all and per bucket, and are this share of all
# entries, or this many bytes: moving holds them in memory. Until then, they cost the reader of a bucket a look at the
# bucket of each entry.
RECENT_ENTRIES, RECENT_ENTRIES_PER_BUCKET, RECENT_SHARE, RECENT_BYTES = 1 << 16, 1 << 12, 16, 1 << 26
_RECENT_SLACK = 1 << 12  # entries that may be dead before moving them is worth its fixed cost


@dataclass(frozen=True)
class Kind:
    """What merges must know of an arrangement: the ring of its payloads, and where entries of recent runs belong."""

    ring: Group
    residence: Residence | None = None


@dataclass(frozen=True)
class Merge:
    """Runs of a bucket that should become one run; those of RECENT may have to move into the buckets instead."""

    arrangement: str
    bucket: int
    runs: tuple[RunRef, ...]
    moves: bool = False

    @property
    def bytes(self) -> int:
        """The size of the runs."""
        return sum(ref.bytes for ref in self.runs)


@dataclass(frozen=True)
class Replacement:
    """Runs that take the place of others.

    Parameters
    ----------
    gone, come : the old runs and the new ones, by bucket.
    growth : by how much the number of live entries of a bucket changes: estimates become exact, or entries move.
    """

    arrangement: str
    gone: Mapping[int, tuple[RunRef, ...]]
    come: Mapping[int, tuple[RunRef, ...]] = field(default_factory=dict)
    growth: Mapping[int, int] = field(default_factory=dict)

    def applied(self, states: States) -> dict[int, BucketState] | None:
        """The buckets that it changes, as they are with it; None if some of the old runs are not there any more."""
        out = {}
        for bucket in {*self.gone, *self.come}:
            state, gone = states.get(bucket, BucketState()), set(self.gone.get(bucket, ()))
            kept = tuple(ref for ref in state.runs if ref not in gone)
            if len(state.runs) - len(kept) != len(gone):
                return None
            out[bucket] = BucketState(kept + tuple(self.come.get(bucket, ())), state.live + self.growth.get(bucket, 0))
        return out

    def files(self) -> set[str]:
        """The names of the new files."""
        return {ref.name for refs in self.come.values() for ref in refs}


def merge_owed(arrangement: str, states: States, bucket: int, buckets: int) -> Merge | None:
    """The merge that a bucket of an arrangement owes; None if it owes none."""
    state = states.get(bucket, BucketState())
    sizes = [ref.rows for ref in state.runs]
    if arrangement.startswith(PENDING):
        return None  # what waits is merged by the steps that add to it, and gone when it is flushed
    if bucket != RECENT:
        due = owed(sizes, state.live)
        return Merge(arrangement, bucket, tuple(state.runs[i] for i in due)) if due else None
    if _moves(states, buckets):
        return Merge(arrangement, bucket, state.runs, moves=True)
    # Entries that are dead in the sum of all buckets cannot be told from the recent runs alone.
    due = owed(sizes, sum(sizes))
    return Merge(arrangement, bucket, tuple(state.runs[i] for i in due)) if due else None


def _moves(states: States, buckets: int) -> bool:
    recent = states.get(RECENT, BucketState()).runs
    entries = sum(ref.rows for ref in recent)
    if entries > sum(state.live for state in states.values()) + _RECENT_SLACK:
        return True  # many of them are dead, and a bucket with all of its entries can tell which
    if entries <= max(RECENT_ENTRIES, RECENT_ENTRIES_PER_BUCKET * buckets):
        return False
    everything = sum(ref.rows for state in states.values() for ref in state.runs)
    return entries * RECENT_SHARE > everything or sum(ref.bytes for ref in recent) > RECENT_BYTES


@dataclass(frozen=True)
class Merging:
    """Does merges.

    Parameters
    ----------
    writer : makes a writer for the runs of one merge.
    buckets : how many buckets the location has.
    check : is called again and again; what it raises ends the merge.
    """

    location: Location
    buckets: int
    writer: Callable[[], RunWriter]
    check: Callable[[], None] = lambda: None

    def run(self, merge: Merge, kind: Kind, states: States) -> Replacement:
        """Do a merge that is owed."""
        with self.writer() as writer:
            return (self._moved if merge.moves else self._merged)(merge, kind, states, writer)

    def _merged(self, merge: Merge, kind: Kind, states: States, writer: RunWriter) -> Replacement:
        state = states[merge.bucket]
        runs = OPEN.opened(self.location.path, BucketState(merge.runs))
        is_all = len(runs) == len(state.runs) and not states.get(RECENT, BucketState()).runs
        residence = kind.residence if merge.bucket == RECENT else None
        run = writer.add_sum(kind.ring, runs, residence, whole=is_all, check=self.check)
        # A table counts its rows, of which some may be there twice; all others count their entries.
        is_exact = is_all and not is_table(merge.arrangement)
        more = (0 if run is None else run.rows) - state.live if is_exact else 0
        come = {} if run is None else {merge.bucket: (run,)}
        return Replacement(merge.arrangement, {merge.bucket: merge.runs}, come, {merge.bucket: more})

    def _moved(self, move: Merge, kind: Kind, states: States, writer: RunWriter) -> Replacement:
        """Move recent runs into the buckets."""
        root = self.location.path
        shares: dict[int, list[Run]] = defaultdict(list)
        for ref in move.runs:
            for bucket, share in OPEN.one(root, ref).by_bucket(self.buckets).items():
                shares[bucket].append(share)
        come: dict[int, tuple[RunRef, ...]] = {}
        more = {RECENT: -states[RECENT].live}
        for bucket in sorted(shares):
            self.check()
            delta = summed(kind.ring, shares.pop(bucket))
            if is_table(move.arrangement):
                more[bucket] = int(delta.payload[0].sum())
            else:
                before = OPEN.opened(root, states.get(bucket, BucketState()))
                more[bucket] = growth(kind.ring, before, delta, sample_size=None)
            if delta.rows:
                come[bucket] = (writer.add(delta),)
        return Replacement(move.arrangement, {RECENT: move.runs}, come, more)
