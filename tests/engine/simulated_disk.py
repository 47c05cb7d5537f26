"""A disk that remembers what was done to it, and what it would have after a power cut at any moment.

Nothing is promised but what was synced. The content of a file that was not is whole, empty, cut short, or has zeros in
it. Of the names that came and went in a folder since it was last synced, any subset is there, in any combination. A
folder is such a name too, and if it is gone, so is all that was made in it.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from pathlib import Path

from headrace.relation.disk import Disk

Content = dict[str, bytes | None]  # by path below the root of the disk; None stands for a folder
FOLDER = -1  # has the place of a file's number


@dataclass(frozen=True)
class Done:
    """One operation, or a note of the test (`said`) between operations."""

    what: str
    path: str = ""
    other: str = ""
    data: bytes = b""
    said: int = 0


class Unsynced(Disk):
    """A disk of tests that look at many locations: it never waits."""

    def sync(self, path: Path) -> None:
        """Do nothing."""

    def sync_folder(self, path: Path) -> None:
        """Do nothing."""

    def write(self, path: Path, data: bytes | bytearray | memoryview, *, sync: bool = False) -> None:
        super().write(path, data)


class Recording(Unsynced):
    """Does everything but syncing, and writes it down.

    Parameters
    ----------
    root : what is below this folder is on the simulated disk.
    """

    def __init__(self, root: Path) -> None:
        self.done: list[Done] = []
        self._root = root
        self._lock = threading.RLock()

    def note(self, what: str, said: int) -> None:
        """Write down what the test has seen so far."""
        with self._lock:
            self.done.append(Done(what, said=said))

    def write(self, path: Path, data: bytes | bytearray | memoryview, *, sync: bool = False) -> None:
        super().write(path, data)
        if sync:
            self.sync(path)

    def wrote(self, path: Path) -> None:
        with self._lock:
            self._add("write", path, data=path.read_bytes())

    def rename(self, old: Path, new: Path) -> None:
        with self._lock:
            super().rename(old, new)
            self._add("rename", old, new)

    def link(self, old: Path, new: Path) -> None:
        with self._lock:
            super().link(old, new)
            self._add("link", old, new)

    def remove(self, path: Path) -> None:
        with self._lock:
            super().remove(path)
            self._add("remove", path)

    def make_folder(self, path: Path, mode: int | None = None) -> None:
        with self._lock:
            is_new = not path.is_dir()
            super().make_folder(path, mode)  # comes here for folders above it
            if is_new:
                self._add("folder", path)

    def sync(self, path: Path) -> None:
        with self._lock:
            if not path.exists():
                raise FileNotFoundError(path)
            self._add("sync", path)

    def sync_folder(self, path: Path) -> None:
        with self._lock:
            self._add("sync folder", path)

    def _add(self, what: str, path: Path, other: Path | None = None, data: bytes = b"") -> None:
        if path.is_relative_to(self._root):
            below = [str(p.relative_to(self._root)) for p in (path, other) if p is not None]
            self.done.append(Done(what, below[0], below[1] if other is not None else "", data))


@dataclass
class PowerCut:
    """What a disk may have after some operations."""

    names: dict[str, int] = field(default_factory=dict)  # that are surely there: path -> file
    pending: dict[str, list[tuple[str, int | None]]] = field(default_factory=dict)  # by folder: path -> file or none
    live: dict[str, int] = field(default_factory=dict)  # as a process sees it
    content: list[bytes] = field(default_factory=list)
    synced: set[int] = field(default_factory=set)

    @classmethod
    def after(cls, content: Content) -> PowerCut:
        """A disk that surely has some content: whatever a power cut left is there."""
        cut = cls()
        for path, data in content.items():
            number = FOLDER
            if data is not None:
                cut.content.append(data)
                number = len(cut.content) - 1
            cut.names[path] = cut.live[path] = number
        cut.synced = set(range(len(cut.content)))
        return cut

    def follow(self, done: Done) -> None:
        """Take the next operation into account."""
        if done.what == "folder":
            self._name(done.path, FOLDER)
        elif done.what == "write":
            self.content.append(done.data)
            self._name(done.path, len(self.content) - 1)
        elif done.what in ("link", "rename"):
            self._name(done.other, self.live[done.path])
            if done.what == "rename":
                self._name(done.path, None)
        elif done.what == "remove":
            if done.path in self.live:
                self._name(done.path, None)
        elif done.what == "sync":
            self.synced.add(self.live[done.path])
        elif done.what == "sync folder":
            for path, file in self.pending.pop(done.path, ()):
                _put(self.names, path, file)

    def _name(self, path: str, file: int | None) -> None:
        folder = str(Path(path).parent)
        self.pending.setdefault(folder, []).append((path, file))
        _put(self.live, path, file)

    def survivors(self, rng: random.Random) -> Content:
        """One of the states that the disk may be in."""
        names = dict(self.names)
        kept = rng.choice((0.0, 0.5, 0.9, 1.0))  # of the names that were not synced
        for path, file in (change for changes in self.pending.values() for change in changes):
            if rng.random() < kept:
                _put(names, path, file)
        torn = rng.choice((0.0, 0.1, 0.5, 1.0))  # of the files that were not synced
        there = {path: file for path, file in names.items() if _is_reached(path, names)}
        return {path: self._survives(file, torn, rng) for path, file in there.items()}

    def everything(self) -> Content:
        """The state if only the process died."""
        return {path: None if file == FOLDER else self.content[file] for path, file in self.live.items()}

    def _survives(self, file: int, torn: float, rng: random.Random) -> bytes | None:
        if file == FOLDER:
            return None
        data = self.content[file]
        if file in self.synced or not data or rng.random() >= torn:
            return data
        at = rng.randrange(len(data))
        zeros = bytes(min(len(data) - at, 1 + rng.randrange(64)))
        return rng.choice((b"", data[:at], data[:at] + zeros + data[at + len(zeros) :], bytes(len(data))))


def _put(names: dict[str, int], path: str, file: int | None) -> None:
    if file is None:
        names.pop(path, None)
    else:
        names[path] = file


def _is_reached(path: str, names: dict[str, int]) -> bool:
    """Whether all folders above a name are there."""
    return all(names.get(str(folder)) == FOLDER for folder in Path(path).parents if folder != Path("."))


def put_there(content: Content, root: Path) -> None:
    """Make a folder that has what a power cut left."""
    root.mkdir()
    for path in sorted(content):  # a folder comes before what is in it
        data = content[path]
        if data is None:
            (root / path).mkdir()
        else:
            (root / path).write_bytes(data)
