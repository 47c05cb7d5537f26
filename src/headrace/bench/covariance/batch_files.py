"""Change batches as Parquet files: what a maintained view and its peers read, the same bytes for all of them.

Files are written before anything is timed. A batch is a folder with one file per table that changes in it; without
deletions there is no `__diff` column, as nobody who only inserts writes one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.datasets.batches import DIFF


@dataclass(frozen=True)
class Batches:
    """A stream of change batches in a folder."""

    folder: Path
    rows: tuple[int, ...]  # of each batch
    deletes: bool

    @classmethod
    def write(cls, folder: Path, batches: Iterable[Mapping[str, pa.Table]], *, deletes: bool) -> Batches:
        """Write batches with pyarrow's own settings, which is how most files that a stream meets are written."""
        rows = []
        for number, changes in enumerate(batches):
            place = folder / f"{number:06d}"
            place.mkdir(parents=True)
            for name, changed in changes.items():
                pq.write_table(changed if deletes else changed.drop_columns([DIFF]), place / f"{name}.parquet")
            rows.append(sum(changed.num_rows for changed in changes.values()))
        return cls(folder, tuple(rows), deletes)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def full(self) -> int:
        """The number of full batches: the last one may have fewer rows."""
        return len(self.rows) - (len(self.rows) > 1 and self.rows[-1] < self.rows[0])

    def read(self, number: int) -> dict[str, pa.Table]:
        """Read one batch."""
        return {path.stem: pq.ParquetFile(path).read() for path in sorted(self._place(number).iterdir())}

    def paths(self, table: str, count: int) -> list[str]:
        """Return the files of a table in the first `count` batches."""
        return [path for number in range(count) for path in self.paths_of(table, number)]

    def paths_of(self, table: str, number: int) -> list[str]:
        """Return the file of a table in one batch, if it changes in it."""
        path = self._place(number) / f"{table}.parquet"
        return [str(path)] if path.exists() else []

    def write_rows(self, folder: Path, table: str, count: int) -> str:
        """Write the rows that a table has after the first `count` batches, to recompute from; return the file."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{table}.parquet"
        changes = pa.concat_tables(pq.ParquetFile(file).read() for file in self.paths(table, count))
        names = [name for name in changes.column_names if name != DIFF]
        net = changes.group_by(names).aggregate([(DIFF, "sum")])
        at = np.repeat(np.arange(net.num_rows), net.column(f"{DIFF}_sum").to_numpy())
        pq.write_table(net.select(names).take(at), path)
        return str(path)

    def _place(self, number: int) -> Path:
        return self.folder / f"{number:06d}"
