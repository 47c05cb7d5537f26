"""Writing the runs of a step: small ones share a file, because making a file costs more than writing one.

A large run has a file of its own, so that its space is free again as soon as the run is merged away. The space of a
small one is free when nothing in its file is used any more. Tables and views never share a file.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.relation import runfile
from headrace.relation.run import Run
from headrace.runtime.location import Location
from headrace.runtime.log import RunRef
from headrace.runtime.openruns import OPEN


def discard(location: Location, names: set[str]) -> None:
    """Remove files of runs that no commit names."""
    for name in names:
        (location.runs / name).unlink(missing_ok=True)
    OPEN.forget(str(location.root), names)


class RunWriter:
    """Writes the runs that one task adds in a step, under names that no other attempt can have.

    Small runs are written when the writer is closed. Use it as a context: after an error nothing more is written.
    """

    def __init__(self, location: Location, version: int, *, fsync: bool) -> None:
        self._location = location
        self._version = version
        self._fsync = fsync
        self._shared = location.new_name(version, ".run")
        self._small = bytearray()

    def add(self, run: Run, buckets: NDArray[np.int32] | None = None) -> RunRef:
        """Write a run; `buckets` has the bucket of each entry, if they lie in several."""
        data = runfile.encode(run, buckets)
        if len(data) > runfile.SMALL:
            name = self._location.new_name(self._version, ".run")
            runfile.write_encoded(data, self._location.runs / name, fsync=self._fsync)
            return RunRef(name, run.rows, len(data))
        ref = RunRef(self._shared, run.rows, len(data), len(self._small))
        self._small += data
        OPEN.keep(self._location.runs, ref, data)
        return ref

    def close(self) -> None:
        """Write the small runs."""
        if self._small:
            runfile.write_encoded(self._small, self._location.runs / self._shared, fsync=self._fsync)
            self._small = bytearray()

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *details: object) -> None:
        if kind is None:
            self.close()
