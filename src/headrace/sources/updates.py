"""Files of updates as a source of steps, and the other way round.

A file can be replayed any number of times, and a batch is known by the number of its last line. That number is
committed with the step it made, so a replay that was killed goes on behind the last line that was applied: no line is
lost and none counts twice, even if batches have another size then or the file has grown.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import pyarrow as pa

from headrace.errors import SchemaError, StorageError
from headrace.relation.schema import DIFF
from headrace.sources.update_form import Schemas, UpdateForm
from headrace.sources.update_reader import Lines, parse
from headrace.sources.update_writer import text_of
from headrace.thrifty.keep.change import Change, Rate

if TYPE_CHECKING:
    from headrace.engine.engine import Engine
    from headrace.engine.step import Step

_BLOCK = 1 << 22
_TOGETHER = 1 << 14  # lines that are read at once, if batches are smaller: a call to Arrow costs as much as 1,000 lines
_LINE_FEED = 10


class UpdateFile:
    """A file of updates, a line each: `+LI1|155190|7706|...` inserts a row of lineitem, `-LI...` deletes it.

    Parameters
    ----------
    path : the file. Lines end with a line feed; fields are parted by `|`, and one more `|` may end the line. An empty
        field is NULL, or the empty text in a column of texts that are NOT NULL. It may grow by whole lines.
    schemas : the columns of each table in the order of a line, as Arrow schemas or `TableSpec`s; TPC-H's by default.
    batch : updates a batch.
    codes : {two letters: table}; those of TPC-H by default.

    Iterating gives change batches {table: rows with `__diff`}, made as they are asked for. A line that cannot be read
    raises `BadRowsError` in place of its batch.
    """

    def __init__(
        self,
        path: str | Path,
        schemas: Schemas | None = None,
        batch: int = 100_000,
        codes: Mapping[str, str] | None = None,
    ) -> None:
        if batch < 1:
            raise SchemaError(f"a batch of {batch} updates holds nothing", way_out="give a batch of 1 or more")
        self._path = Path(path)
        self._batch = batch
        self._form = UpdateForm(schemas, codes)

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    @property
    def batch(self) -> int:
        """Updates a batch."""
        return self._batch

    def __iter__(self) -> Iterator[dict[str, pa.Table]]:
        return (changes for _, changes in self.batches())

    def batches(self, skip: int = 0) -> Iterator[tuple[int, dict[str, pa.Table]]]:
        """Yield (number of the last line, changes) for each batch behind the first `skip` lines.

        The number is what `engine.apply(changes, source=(name, number))` wants.
        """
        try:
            with self.path.open("rb") as file:
                self._skip(file, skip)
                for lines in _cut(file, self.batch * max(1, _TOGETHER // self.batch), skip, str(self.path)):
                    last = lines.first + len(lines) - 1
                    for number, changes in enumerate(parse(self._form, lines, self.batch), start=1):
                        yield min(lines.first - 1 + number * self.batch, last), changes
        except OSError as error:
            raise StorageError(
                f"{self.path} cannot be read: {error.strerror or error}", way_out="check the path and its permissions"
            ) from error

    def replay(self, engine: Engine, name: str | None = None) -> Iterator[Step]:
        """Apply the updates that the engine has not had yet, one step a batch, and yield the steps.

        Steps are made as they are asked for: `for step in file.replay(engine): ...`. Before each of them, the file
        announces what its batches bring (`engine.announce`), until it ends or is not asked any more.

        Parameters
        ----------
        name : what the engine remembers the file by, its absolute path by default. Give one if the file may move.
        """
        known = name or str(self.path.resolve())
        rate = Rate()
        try:
            for number, changes in self.batches(skip=engine.status()["sources"].get(known, 0)):
                rate = rate.after({name: _counted(rows) for name, rows in changes.items()})
                coming = {name: (round(one.inserted), round(one.deleted)) for name, one in rate.per_batch().items()}
                engine.announce(known, coming)
                yield engine.apply(changes, source=(known, number))
        finally:
            engine.announce(known, None)

    def _skip(self, file: BinaryIO, count: int) -> None:
        """Put the file behind its first lines."""
        left = count
        while left:
            at = file.tell()
            block = file.read(_BLOCK)
            feeds = np.flatnonzero(np.frombuffer(block, np.uint8) == _LINE_FEED)
            if len(feeds) >= left:
                file.seek(at + int(feeds[left - 1]) + 1)
                return
            left -= len(feeds)
            if not block:
                if left == 1 and _ends_within_a_line(file):
                    return
                raise StorageError(
                    f"{self.path} has {count - left:,} lines, of which {count:,} are to be skipped",
                    way_out="it is not the file that was applied before: replay it under another name=...",
                )


def write_updates(
    path: str | Path,
    batches: Iterable[Mapping[str, pa.Table]],
    schemas: Schemas | None = None,
    codes: Mapping[str, str] | None = None,
) -> int:
    """Write change batches as a file of updates, and return the bytes written; the file is there wholly or not at all.

    Batches follow one another. Within a batch tables do too, unless they have a column `__position`, as those of
    `Updates.batches(size, positions=True)` have: then it decides. A row with `__diff` = 2 makes two lines.
    """
    form, target = UpdateForm(schemas, codes), Path(path)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with unfinished.open("wb") as file:
            for batch in batches:
                for piece in text_of(form, batch):
                    file.write(piece)
            size = file.tell()
        unfinished.replace(target)
    except OSError as error:
        raise StorageError(
            f"{target} cannot be written: {error.strerror or error}",
            way_out="check the folder's permissions and the free space",
        ) from error
    finally:
        unfinished.unlink(missing_ok=True)
    return size


def _counted(rows: pa.Table) -> Change:
    """How many rows a batch of one table inserts and deletes."""
    diff = rows[DIFF].to_numpy()
    return Change(float(diff[diff > 0].sum()), float(-diff[diff < 0].sum()))


def _cut(file: BinaryIO, batch: int, skipped: int, name: str) -> Iterator[Lines]:
    """Cut the rest of a file into batches of whole lines."""
    data, ends, at, first = np.empty(0, np.uint8), np.empty(0, np.int64), 0, skipped + 1
    more = True
    while more or len(ends):
        while more and len(ends) < batch:
            # What is left is copied once a block, so blocks grow with it.
            rest = data[at:]
            block = np.frombuffer(file.read(max(_BLOCK, len(rest))), np.uint8)
            more = len(block) > 0
            if not more and len(rest) and rest[-1] != _LINE_FEED:
                block = np.array([_LINE_FEED], np.uint8)  # the last line need not have one
            found = np.flatnonzero(block == _LINE_FEED) + len(rest)
            ends, data, at = np.concatenate([ends - at, found]), np.concatenate([rest, block]), 0
        now, ends = ends[:batch], ends[batch:]
        if len(now):
            stop = int(now[-1]) + 1
            yield Lines(data[at:stop], now - at, first, name)
            at, first = stop, first + len(now)


def _ends_within_a_line(file: BinaryIO) -> bool:
    size = file.tell()
    if size == 0:
        return False
    file.seek(size - 1)
    return file.read(1) != b"\n"
