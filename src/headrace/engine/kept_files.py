"""Which files of a location stay although the current snapshot does not need them, and until when.

A file that a commit has replaced is *doomed*. It goes once that commit is safe from a power cut, no reader of this
process has *pinned* it, and no reader of another process holds a lease on an earlier version. Files that are just being
made are named by no commit yet, and stay as well.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator

from headrace.engine.durability import path_of
from headrace.relation import disk
from headrace.runtime.leases import NOTHING, oldest
from headrace.runtime.location import Location
from headrace.runtime.openruns import OPEN


class KeptFiles:
    """The files of one location that an engine keeps.

    Attributes
    ----------
    lock : to be held by whoever decides by the snapshot and these files together.
    """

    def __init__(self, location: Location) -> None:
        self.lock = threading.RLock()
        self._location = location
        self._pins: dict[int, tuple[int, set[str]]] = {}  # the version that is read, and the files to be kept
        self._next_pin = 0
        self._doomed: dict[str, int] = {}  # files, with the commit that needs them no more
        self._under_way: list[set[str]] = []  # files that are being made

    def pin(self, version: int, names: set[str]) -> int:
        """Keep files for a reader of a version; returns what `unpin` wants."""
        with self.lock:
            self._next_pin += 1
            self._pins[self._next_pin] = version, names
            return self._next_pin

    def unpin(self, pin: int) -> None:
        """Let go of what was pinned."""
        with self.lock:
            self._pins.pop(pin, None)

    @property
    def oldest_pinned(self) -> int:
        """The oldest version that a reader has pinned; `NOTHING` if none has."""
        with self.lock:
            return min((version for version, _ in self._pins.values()), default=NOTHING)

    def doom(self, names: Collection[str], version: int) -> None:
        """Take note of files that a commit needs no more; those before it may."""
        with self.lock:
            self._doomed |= dict.fromkeys(names, version)

    @contextlib.contextmanager
    def making(self) -> Iterator[set[str]]:
        """Gives a set that wants the names of files before they are made."""
        new: set[str] = set()
        with self.lock:
            self._under_way.append(new)
        try:
            yield new
        finally:
            with self.lock:
                # By identity: another set may have the same names, or as few.
                self._under_way = [names for names in self._under_way if names is not new]

    def kept(self) -> set[str]:
        """The files that stay for readers, or for a commit that may still be the last one."""
        with self.lock:
            return self._doomed.keys() | {name for _, names in self._pins.values() for name in names}

    def under_way(self) -> set[str]:
        """The files that are being made."""
        with self.lock:
            return set().union(*(names.copy() for names in self._under_way))

    def free(self, safe: int) -> set[str]:
        """The doomed files that may go: nobody reads them, and what replaced them is safe up to a version."""
        with self.lock:
            pinned = {name for _, names in self._pins.values() for name in names}
            found = {name for name, version in self._doomed.items() if version <= safe and name not in pinned}
            if not found:
                return found
            read = oldest(self._location.readers)
            return {name for name in found if self._doomed[name] <= read}

    def bury(self, names: set[str]) -> None:
        """Remove doomed files."""
        with self.lock:
            gone = names & self._doomed.keys()
            for name in gone:
                del self._doomed[name]
        disk.tidy([path_of(self._location, name) for name in gone])
        OPEN.forget(self._location.path, gone)
