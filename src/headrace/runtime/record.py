"""What one commit says: the new list of runs of every bucket that it changed, and whatever else changed with it.

A record is read from a folder that is not trusted. So whatever becomes the name of a file is checked, and so are the
kinds of all parts; what they mean is checked where they are used.
"""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.errors import CorruptFileError, HeadraceError, StorageError
from headrace.relation import disk
from headrace.relation.from_log import REPAIR
from headrace.relation.schema import check_name
from headrace.remote.store import READ_AGAIN
from headrace.runtime.location import Settings

RECENT = -1  # stands for a bucket, and has the runs that small steps wrote, with entries of all buckets
PENDING = "pending/"  # begins the names of arrangements of changes that wait at an inlet of a view
FINAL = "final/"  # begins the names of arrangements whose entries no step changes any more

_RUN = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]*\.run")
_WRITER = re.compile("[0-9a-f]{0,32}")
_ASIDE = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]*\.[0-9a-f]{8}\.arrow")


@dataclass(frozen=True)
class RunRef:
    """A run: the name of its file, how many entries it has, its size, and at which byte of the file it begins.

    Parameters
    ----------
    crc : the checksum of its header, which has those of everything else: another run in its place is noticed.
    """

    name: str
    rows: int
    bytes: int
    at: int = 0
    crc: int = 0

    def to_json(self) -> list[Any]:
        return [self.name, self.rows, self.bytes, self.at, self.crc]

    @classmethod
    def from_json(cls, data: list[Any]) -> RunRef:
        name, *numbers = data
        if not isinstance(name, str) or not _RUN.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a run")
        return cls(name, *(_natural(number) for number in numbers))


@dataclass(frozen=True)
class BucketState:
    """One arrangement in one bucket: its runs, and how many entries are alive in their sum."""

    runs: tuple[RunRef, ...] = ()
    live: int = 0

    def to_json(self) -> list[Any]:
        return [self.live, [run.to_json() for run in self.runs]]

    @classmethod
    def from_json(cls, data: list[Any]) -> BucketState:
        live, runs = data
        return cls(tuple(RunRef.from_json(run) for run in runs), _integer(live))


Arrangements = dict[str, dict[int, BucketState]]
Changes = dict[str, list[RunRef]]
"""The runs with the changes of views in a step, by view."""


@dataclass(frozen=True)
class Record:
    """One commit: what changed."""

    version: int
    step: int
    buckets: Arrangements = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    tables: dict[str, Any] = field(default_factory=dict)
    views: dict[str, Any] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    sources: dict[str, int] = field(default_factory=dict)
    changes: Changes = field(default_factory=dict)
    quarantine: dict[str, list[str]] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    watermarks: dict[str, int] = field(default_factory=dict)  # of tables, in microseconds since 1970
    late: dict[str, list[str]] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)  # rows of a table that a step changes, on average
    goals: dict[str, Any] = field(default_factory=dict)  # how far each view with a goal is
    learnt: dict[str, Any] = field(default_factory=dict)  # what earlier triggers of views with goals have shown
    shown: Arrangements = field(default_factory=dict)  # what readers see of answers that are ahead of their triggers
    published: tuple[str, ...] = ()  # arrangements of which readers see the state again
    unshown: Changes = field(default_factory=dict)  # the changes of answers that readers do not see yet
    shared: dict[str, Any] | None = None  # all subplans that views share, if that has changed
    unshared: list[Any] | None = None  # all that was taken apart and stays so, if that has changed
    unkept: dict[str, Any] = field(default_factory=dict)  # per view, the arrangements dropped for now, with their sizes
    memory: dict[str, Any] | None = None  # what the memory budget has led to, and which changes are expected next
    unmerged: list[str] | None = None  # the views that have still to be merged with others, if that has changed
    settings: dict[str, Any] | None = None  # those of the location, if they have changed or were in no record yet
    writer: str = ""  # who wrote it, where a location is elsewhere and no lock tells; "" under a lock
    claims: list[int] | None = None  # the commits with which engines became the writer, in a record of everything

    def to_bytes(self) -> bytes:
        data = self.__dict__ | {
            "buckets": _states_to_json(self.buckets),
            "shown": _states_to_json(self.shown),
            "changes": {name: [run.to_json() for run in runs] for name, runs in self.changes.items()},
            "unshown": {name: [run.to_json() for run in runs] for name, runs in self.unshown.items()},
        }
        text = json.dumps(data, separators=(",", ":")).encode()
        return text + f"\n{zlib.crc32(text):08x}\n".encode()

    @classmethod
    def read(cls, path: Path) -> Record:
        try:
            text, crc, end = disk.read(path).split(b"\n")
            if end or int(crc, 16) != zlib.crc32(text):
                raise ValueError("it does not match its checksum")
            record = cls.from_json(json.loads(text))
            if record.version != int(path.name.partition(".")[0]):
                raise ValueError(f"it is commit {record.version}")
        except OSError as error:
            if disk.is_damage(error):
                raise CorruptFileError(f"commit record {path} is damaged: {error}", way_out=REPAIR) from error
            raise StorageError(f"{path} could not be read: {error.strerror or error}", way_out=READ_AGAIN) from error
        except HeadraceError as error:
            raise CorruptFileError(f"commit record {path} is damaged: {error.what}", way_out=REPAIR) from error
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            raise CorruptFileError(f"commit record {path} is damaged: {error}", way_out=REPAIR) from error
        return record

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Record:
        """The record of its JSON; raises ValueError, TypeError, AttributeError or KeyError if it is none.

        Whatever becomes the name of a file is checked here: nothing that a record says leads out of the location.
        """
        for name in ("buckets", "shown"):
            data[name] = _states_from_json(data.get(name, {}))
        for name in ("changes", "unshown"):
            named = data.get(name, {}).items()
            data[name] = {view: [RunRef.from_json(run) for run in runs] for view, runs in named}
        for name in ("dropped", "removed", "published"):
            data[name] = tuple(str(one) for one in data.get(name, ()))
        for name, kind in _KINDS.items():
            found = data.get(name)
            if not isinstance(found, kind) and (found is not None or (name in data and name not in _MAY_BE_NONE)):
                raise ValueError(f"its {name} are no {kind.__name__}")
        if not all(isinstance(view, str) for view in data.get("unmerged") or ()):
            raise ValueError("its unmerged views are no names")
        if data.get("settings") is not None:
            Settings.from_json(data["settings"])
        for aside in (data.get("quarantine", {}), data.get("late", {})):
            for file in (file for files in aside.values() for file in files):
                if not isinstance(file, str) or not _ASIDE.fullmatch(file):
                    raise ValueError(f"{file!r} is no name of a file of rows that were set aside")
        if not isinstance(data.get("writer", ""), str) or not _WRITER.fullmatch(data.get("writer", "")):
            raise ValueError(f"{data['writer']!r} is no name of a writer")
        for claim in data.get("claims") or ():
            _natural(claim)
        for name in (*data.get("tables", {}), *data.get("views", {})):
            check_name(name, "table or view")
        _natural(data["version"]), _natural(data["step"])
        return cls(**data)


_KINDS: dict[str, type] = {
    **dict.fromkeys(("tables", "views", "sources", "quarantine", "summary", "watermarks", "late", "rates"), dict),
    **dict.fromkeys(("goals", "learnt", "unkept", "shared", "memory", "settings"), dict),
    **dict.fromkeys(("unshared", "unmerged", "claims"), list),
}
_MAY_BE_NONE = ("shared", "memory", "unshared", "unmerged", "settings", "claims")


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r} is no integer")
    return value


def _natural(value: Any) -> int:
    if _integer(value) < 0:
        raise ValueError(f"{value} is less than 0")
    return int(value)


def _states_to_json(arrangements: Arrangements) -> dict[str, Any]:
    return {
        name: {bucket: state.to_json() for bucket, state in buckets.items()} for name, buckets in arrangements.items()
    }


def _states_from_json(data: dict[str, Any]) -> Arrangements:
    return {
        name: {int(bucket): BucketState.from_json(state) for bucket, state in buckets.items()}
        for name, buckets in data.items()
    }
