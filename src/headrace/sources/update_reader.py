"""From lines of updates to change batches, at half a million lines a second or more.

Lines of many tables follow one another in any order. They are told apart and checked with array operations over their
bytes, and then Arrow reads the fields of each table at once; nothing here goes line by line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
from numpy.typing import NDArray

from headrace.errors import BadRowsError
from headrace.relation.schema import DIFF
from headrace.relation.types import sql_type
from headrace.sources.update_form import UpdateForm, is_text

Placed = tuple[pa.Table, NDArray[np.int64]]  # rows, and the line that each is on

_PLUS, _MINUS, _BAR, _RETURN = b"+-|\r"
_HEADER = 3  # a sign and a code
_SHOWN = 80
_PIECE = 1 << 16  # lines that are sorted out at once: more of them leave the processor's caches
_SMALL = 1 << 20  # bytes up to which Arrow reads faster without its threads
_FORM = "write a line as +CO or -CO, then the fields, parted by |"


@dataclass(frozen=True)
class Lines:
    """Whole lines of a file.

    Attributes
    ----------
    data : their bytes, each line with the line feed that ends it.
    ends : where these line feeds are.
    first : the number of the first line in its file, from 1.
    file : its name, for errors.
    """

    data: NDArray[np.uint8]
    ends: NDArray[np.int64]
    first: int
    file: str

    def __len__(self) -> int:
        return len(self.ends)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where the lines begin."""
        return np.concatenate([np.zeros(1, np.int64), self.ends[:-1] + 1])

    def part(self, start: int, size: int) -> Lines:
        """Some of the lines, by their place among these."""
        ends = self.ends[start : start + size]
        offset = int(self.starts[start])
        return Lines(self.data[offset : int(ends[-1]) + 1], ends - offset, self.first + start, self.file)

    def error(self, line: int, what: str, way_out: str) -> BadRowsError:
        """Return an error that shows the beginning of a line."""
        start, end = int(self.starts[line]), int(self.ends[line])
        # Cut by characters, of up to four bytes, so that none of those shown is cut itself.
        text = self.data[start : min(end, start + 4 * _SHOWN + 4)].tobytes().decode(errors="backslashreplace")
        shown = repr(text[:_SHOWN])[1:-1] + ("..." if len(text) > _SHOWN else "")
        return BadRowsError(f"{self.file}, line {self.first + line}: {what}\n    {shown}", way_out=way_out)


def parse(form: UpdateForm, lines: Lines, size: int) -> Iterator[dict[str, pa.Table]]:
    """Read lines as change batches of `size` lines: rows by table, in the order of the lines, with `__diff`."""
    try:
        tables = _tables(form, lines)
    except BadRowsError:
        if len(lines) <= size:
            raise
        # The batches before the one with the bad line are fine.
        for start in range(0, len(lines), size):
            yield from parse(form, lines.part(start, size), size)
        return
    for start in range(0, len(lines), size):
        batch = {}
        for name, (rows, at) in tables.items():
            low, high = np.searchsorted(at, (start, start + size))
            if low < high:
                batch[name] = rows.slice(low, high - low)
        yield batch


def _tables(form: UpdateForm, lines: Lines) -> dict[str, Placed]:
    found: dict[str, list[Placed]] = {}
    for start in range(0, len(lines), _PIECE):
        for name, (rows, at) in _piece(form, lines.part(start, _PIECE)).items():
            found.setdefault(name, []).append((rows, at + start))
    return {
        name: (pa.concat_tables([rows for rows, _ in parts]), np.concatenate([at for _, at in parts]))
        for name, parts in found.items()
    }


def _piece(form: UpdateForm, lines: Lines) -> dict[str, Placed]:
    _check_beginnings(lines)
    numbers = _table_numbers(form, lines)
    last_bar = _last_bars(form, lines, numbers)
    diff = np.where(lines.data[lines.starts] == _PLUS, np.int64(1), np.int64(-1))
    lengths = lines.ends - lines.starts + 1
    found = {}
    for number, name in enumerate(form.codes.values()):
        mine = numbers == number
        if not mine.any():
            continue
        kept = np.repeat(mine, lengths)
        kept[lines.ends[mine & last_bar] - 1] = False
        data, chosen = lines.data[kept], np.flatnonzero(mine)
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths[chosen] - last_bar[chosen])])
        # The code has done its work: its last letter becomes the bar that parts the header from the first field.
        data[starts[:-1] + _HEADER - 1] = _BAR
        rows = _rows(name, form.schemas[name], lines, data, starts, chosen)
        found[name] = rows.append_column(DIFF, pa.array(diff[mine])), chosen
    return found


def _check_beginnings(lines: Lines) -> None:
    for problem, what in (
        (lines.ends - lines.starts < _HEADER, "the line is too short"),
        (~np.isin(lines.data[lines.starts], (_PLUS, _MINUS)), "the line begins with neither + nor -"),
    ):
        if problem.any():
            raise lines.error(int(problem.argmax()), what, _FORM)
    returns = np.flatnonzero(lines.data == _RETURN)
    if len(returns):
        line = int(np.searchsorted(lines.ends, returns[0]))
        # Arrow would end the line there.
        raise lines.error(line, "there is a carriage return", "end lines with a line feed only, as Unix does")


def _table_numbers(form: UpdateForm, lines: Lines) -> NDArray[np.int64]:
    """Return the place of each line's table in the codes; headers are looked up by the number their letters make."""
    by_header = np.full(1 << 16, -1, np.int64)
    by_header[[int.from_bytes(code.encode(), "big") for code in form.codes]] = np.arange(len(form.codes))
    numbers = by_header[lines.data[lines.starts + 1].astype(np.int64) << 8 | lines.data[lines.starts + 2]]
    if (numbers < 0).any():
        raise lines.error(
            int((numbers < 0).argmax()),
            "the header names no table",
            f"known are {form.known}; name other tables in schemas=... and codes=...",
        )
    return numbers


def _last_bars(form: UpdateForm, lines: Lines, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Check the number of fields, and return which lines end with a bar, which may be there or not."""
    tables = list(form.codes.values())
    bars = np.diff(np.searchsorted(np.flatnonzero(lines.data == _BAR), lines.ends), prepend=0)
    wanted = np.array([len(form.schemas[name]) for name in tables])[numbers]
    last_bar = (bars == wanted) & (lines.data[lines.ends - 1] == _BAR)
    wrong = (bars != wanted - 1) & ~last_bar
    if wrong.any():
        line = int(wrong.argmax())
        name = tables[numbers[line]]
        raise lines.error(
            line,
            f"{bars[line] + 1} fields given, {name} has {wanted[line]}",
            f"give {', '.join(form.schemas[name].names)}; no field may hold a |",
        )
    return last_bar


def _rows(
    name: str,
    schema: pa.Schema,
    lines: Lines,
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    chosen: NDArray[np.int64],
) -> pa.Table:
    """Read the rows of one table; `data` and `starts` are its lines, `chosen` their places among all lines."""
    try:
        rows = _read(schema, data)
    except pa.ArrowInvalid:
        line = _first_bad(schema, data, starts)
        fields = data[starts[line] : starts[line + 1] - 1].tobytes().split(b"|")[1:]
        raise lines.error(
            int(chosen[line]),
            _misread(name, schema, fields),
            "correct the line, or the column's type in schemas=...",
        ) from None
    for field in schema:
        if not field.nullable and rows[field.name].null_count:
            missing = int(rows[field.name].is_null().to_numpy().argmax())
            what = f"column {field.name} of {name} is empty"
            raise lines.error(int(chosen[missing]), what, f"give it a value: {name}.{field.name} is NOT NULL")
    return rows


def _read(schema: pa.Schema, data: NDArray[np.uint8]) -> pa.Table:
    """Read the fields behind the first one, which holds what is left of the header."""
    small = len(data) <= _SMALL
    table = csv.read_csv(
        pa.BufferReader(pa.py_buffer(data)),
        csv.ReadOptions(
            column_names=["", *schema.names], use_threads=not small, block_size=len(data) if small else _SMALL
        ),
        csv.ParseOptions(delimiter="|", quote_char=False, escape_char=False, ignore_empty_lines=False),
        csv.ConvertOptions(
            column_types={"": pa.string(), **dict(zip(schema.names, schema.types, strict=True))},
            include_columns=schema.names,
            null_values=[""],
            strings_can_be_null=False,
        ),
    )
    columns = [_with_nulls(field, column) for field, column in zip(schema, table.columns, strict=True)]
    return pa.table(columns, schema=schema)


def _with_nulls(field: pa.Field, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """An empty text is NULL where a column may be NULL, and empty where it may not."""
    if not (field.nullable and is_text(field.type)):
        return column
    return pc.if_else(pc.equal(column, pa.scalar("", field.type)), pa.scalar(None, field.type), column)


def _first_bad(schema: pa.Schema, data: NDArray[np.uint8], starts: NDArray[np.int64]) -> int:
    """Find the first line that cannot be read, by halves: Arrow's threads do not say which."""
    good, bad = 0, len(starts) - 1
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            _read(schema, data[starts[good] : starts[middle]])
            good = middle
        except pa.ArrowInvalid:
            bad = middle
    return good


def _misread(name: str, schema: pa.Schema, fields: list[bytes]) -> str:
    """Say which field of a line cannot be read."""
    for field, text in zip(schema, fields, strict=True):
        try:
            _read(pa.schema([field]), np.frombuffer(b"+ |" + text + b"\n", np.uint8))
        except pa.ArrowInvalid:
            shown = text[:_SHOWN].decode(errors="backslashreplace")
            wanted = "UTF-8 text" if is_text(field.type) else str(sql_type(field.type)).upper()
            return f"column {field.name} of {name}: {shown!r} is not {wanted}"
    return f"the fields of {name} cannot be read"
