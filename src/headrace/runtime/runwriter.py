"""Writing the runs of a step: small ones share a file, because making a file costs more than writing one.

A large run has a file of its own, so that its space is free again as soon as the run is merged away. The space of a
small one is free when nothing in its file is used any more. Tables and views never share a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from headrace.relation import disk, runfile
from headrace.relation.arrangement import alive, pieces
from headrace.relation.residence import Residence
from headrace.relation.run import Run, merge
from headrace.relation.runset import AnyRun, bytes_of
from headrace.relation.runstream import RunStream
from headrace.rings import Group
from headrace.runtime.location import Location, writing
from headrace.runtime.openruns import OPEN
from headrace.runtime.record import RunRef

# What a merge has in memory at a time: a piece of so many bytes, but not fewer rows than make a piece worth its while.
_PIECE_BYTES, _LEAST_ROWS = 1 << 23, 1 << 10


def discard(location: Location, names: set[str]) -> None:
    """Remove files of runs that no commit names."""
    disk.tidy([location.runs / name for name in names])
    OPEN.forget(location.path, names)


class RunWriter:
    """Writes the runs that one task adds in a step, under names that no other attempt can have.

    Small runs are written when the writer is closed. Use it as a context: after an error nothing more is written.

    Parameters
    ----------
    names : gets the name of each file before the file is made.
    merges_small : whether the step merges small runs only, and owes the other merges.
    """

    def __init__(
        self,
        location: Location,
        version: int,
        *,
        fsync: bool,
        names: set[str] | None = None,
        merges_small: bool = False,
    ) -> None:
        self.merges_small = merges_small
        self._location = location
        self._version = version
        self._fsync = fsync
        self._names = set() if names is None else names
        self._shared = self._new_name()
        self._small = bytearray()

    def add(self, run: Run, buckets: NDArray[np.int32] | None = None) -> RunRef:
        """Write a run; `buckets` has the bucket of each entry, if they lie in several."""
        data = runfile.encode(run, buckets)
        if len(data) > runfile.SMALL:
            path = self._location.runs / self._new_name()
            runfile.write_encoded(data, path, fsync=self._fsync)
            OPEN.wrote(path)
            return RunRef(path.name, run.rows, len(data), crc=runfile.crc_of(data))
        ref = RunRef(self._shared, run.rows, len(data), len(self._small), runfile.crc_of(data))
        self._small += data
        OPEN.keep(self._location.runs, ref, data)
        return ref

    def add_sum(
        self,
        ring: Group,
        runs: Sequence[AnyRun],
        residence: Residence | None = None,
        *,
        whole: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> RunRef | None:
        """Write the sum of runs as one run, a long one piece by piece; None if nothing is left.

        Parameters
        ----------
        residence : says in which bucket each entry lies, if they lie in several.
        whole : whether the runs are all that there is: an entry whose count is zero is gone then, with whatever its
            other sums left behind.
        check : is called before each piece; what it raises ends the work.
        """
        entries, rows = sum(run.rows for run in runs), _piece_rows(runs)
        if entries <= rows:
            run = _existing(merge(ring, list(runs)), whole)  # type: ignore[arg-type]
            return self.add(run, None if residence is None else residence.of(run.words)) if run.rows else None
        path = self._location.runs / self._new_name()
        width = max(run.words.shape[0] for run in runs)
        with writing(path), RunStream(path.parent, width, with_buckets=residence is not None) as stream:
            for piece in pieces(ring, runs, rows):
                check()
                piece = _existing(piece, whole)
                stream.add(piece, None if residence is None else residence.of(piece.words))
            if not stream.rows:
                return None
            size, crc = stream.write(path, fsync=self._fsync)
        OPEN.wrote(path)
        return RunRef(path.name, stream.rows, size, crc=crc)

    def stream(self, width: int) -> RunStream:
        """Begin a long run whose pieces come in the order of their keys; `finish` ends it."""
        return RunStream(self._location.runs, width)

    def finish(self, stream: RunStream) -> RunRef:
        """Write a long run of which all pieces have come."""
        path = self._location.runs / self._new_name()
        with writing(path):
            size, crc = stream.write(path, fsync=self._fsync)
        OPEN.wrote(path)
        return RunRef(path.name, stream.rows, size, crc=crc)

    def close(self) -> None:
        """Write the small runs."""
        if self._small:
            runfile.write_encoded(self._small, self._location.runs / self._shared, fsync=self._fsync)
            self._small = bytearray()

    def _new_name(self) -> str:
        name = self._location.new_name(self._version, ".run")
        self._names.add(name)
        return name

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *details: object) -> None:
        if kind is None:
            self.close()


def pieces_of(ring: Group, runs: Sequence[AnyRun]) -> Iterator[Run]:
    """The sum of all runs that there are, in pieces worth their while: entries whose count is zero are gone."""
    return (_existing(piece, True) for piece in pieces(ring, runs, _piece_rows(runs)))


def whole_sum(ring: Group, runs: Sequence[AnyRun]) -> Run:
    """The sum of all runs that there are, at once."""
    return _existing(merge(ring, list(runs)), True)  # type: ignore[arg-type]


def _piece_rows(runs: Sequence[AnyRun]) -> int:
    entries, size = sum(run.rows for run in runs), sum(bytes_of(run) for run in runs)
    return max(_LEAST_ROWS, _PIECE_BYTES * entries // max(1, size))


def _existing(run: Run, whole: bool) -> Run:
    there = alive(run.payload) if whole else None
    return run if there is None or there.all() else run.take(there)
