"""Window joins of two append-only tables: how they are planned and read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from headrace.engine import frames
from headrace.engine.access import Access
from headrace.engine.catalogue import Entry
from headrace.engine.definition import Definition, PlannedView, WindowAnswer, WindowJoinRequest
from headrace.engine.handles import AnswerHandle
from headrace.engine.reader import Reader
from headrace.errors import SchemaError
from headrace.plan.expression import column
from headrace.relation.schema import DIFF, Column, TableSchema
from headrace.relation.storedrun import StoredRun
from headrace.relation.types import SqlType
from headrace.runtime.openruns import OPEN
from headrace.thrifty.strategy import WINDOW_JOIN
from headrace.window.emitted import ANSWERS, read_answers
from headrace.window.estimators import make_estimator
from headrace.window.groups import GROUPS, KEYS, Groups
from headrace.window.late import read_late
from headrace.window.spec import WindowSpec, duration_of
from headrace.window.window_view import ESTIMATOR_STATE, LATE, REVISIONS, Side, WindowView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DURATIONS = ("window", "slide", "emit_after", "horizon", "within")
_TIMES = ("timestamp", "timestamp_ntz")
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
_NO_KEYS = ("float", "double")  # NaN equals NaN and 0.0 equals -0.0 in Spark, but not as words
_DOUBLE = SqlType("double")
_COLUMNS = (
    *(Column(name, SqlType("timestamp")) for name in ("window_start", "window_end", "emitted_at")),
    *(Column(name, _DOUBLE) for name in ("value", "low", "high", "observed")),
    Column("final", SqlType("boolean")),
)

Names = str | Sequence[str]


def definition_of(left: str, right: str, asked: Mapping[str, Any]) -> Definition:
    """The definition of a window join, as the commit log keeps it."""
    plain: dict[str, Any] = {
        what: str(duration_of(what, given)) if what in _DURATIONS else given
        for what, given in asked.items()
        if given is not None
    }
    plain["on"] = _names(asked["on"])
    if "only" in plain:
        plain["only"] = tuple(plain["only"])
    return Definition(WindowJoinRequest(left, right, **plain))


def plan_window_join(
    name: str, definition: Definition, tables: Mapping[str, TableSchema], seed: int
) -> PlannedView[WindowView, WindowAnswer]:
    """Plan a window join; raises if its tables cannot be joined by windows."""
    asked = definition.request
    assert isinstance(asked, WindowJoinRequest)
    spec = WindowSpec.parse(
        asked.window,
        slide=asked.slide,
        emit_after=asked.emit_after,
        horizon=asked.horizon,
        agg=asked.agg,
        within=asked.within,
    )
    make_estimator(asked.estimator, spec, interval=asked.interval)  # raises if the estimator or the interval is wrong
    if asked.revisions not in REVISIONS:
        raise SchemaError(
            f"window join {name!r}: revisions={asked.revisions!r} is not known",
            way_out=f"use one of {', '.join(map(repr, REVISIONS))}",
        )
    if not isinstance(asked.by_key, bool):
        raise SchemaError(f"window join {name!r}: by_key={asked.by_key!r} is not known", way_out="use True or False")
    reader = _Reader(name, tables)
    sides = [reader.side(number, asked, spec) for number in (0, 1)]
    for ours, theirs in zip(sides[0].keys, sides[1].keys, strict=True):
        if ours.type != theirs.type:
            raise SchemaError(
                f"window join {name!r}: {ours} is {ours.type} in {sides[0].table!r} and {theirs.type} in "
                f"{sides[1].table!r}",
                way_out="register both columns with the same type",
            )
    kernel = WindowView(
        spec,
        (sides[0], sides[1]),
        seed,
        asked.estimator,
        float(asked.interval),
        asked.revisions,
        by_key=asked.by_key,
    )
    return PlannedView(definition.with_choice(WINDOW_JOIN), kernel, kernel.tables, WindowAnswer(kernel))


@dataclass(frozen=True)
class _Reader:
    """Finds the columns of a window join."""

    name: str
    tables: Mapping[str, TableSchema]

    def side(self, number: int, asked: WindowJoinRequest, spec: WindowSpec) -> Side:
        table = (asked.left, asked.right)[number]
        schema = self.tables.get(table)
        if schema is None:
            self._refuse(f"there is no table {table!r}", "register it with engine.table(..., append_only=True)")
        if not schema.append_only:
            self._refuse(
                f"rows of table {table!r} may be deleted, and what has been estimated cannot be taken back",
                f"register {table!r} with append_only=True",
            )
        keys = tuple(self._column(schema, key, "a key", but=_NO_KEYS) for key in asked.on)
        event, arrival = (self._column(schema, column, "a time", only=_TIMES) for column in (asked.time, asked.arrival))
        aggregate, value = spec.aggregate, None
        if aggregate.column is not None and aggregate.side == number:
            value = self._column(schema, aggregate.column, "a number", only=_NUMBERS)
        of_side = (
            None if asked.only is None else self._column(schema, asked.only[number], "a condition", only=("boolean",))
        )
        return Side(table, keys, event, arrival, value, of_side)

    def _column(
        self, schema: TableSchema, name: str, what: str, only: Sequence[str] = (), but: Sequence[str] = ()
    ) -> Any:
        if name not in schema.names:
            self._refuse(f"table {schema.name!r} has no column {name!r}", f"it has {', '.join(schema.names)}")
        found = schema.column(name)
        if (only and found.type.kind not in only) or found.type.kind in but:
            self._refuse(
                f"{name!r} of table {schema.name!r} is {found.type}, which is not {what} that a window join can use",
                f"use a column of {' or '.join(kind.upper() for kind in only) if only else 'another type'}",
            )
        return column(found.name, found.type, found.nullable)

    def _refuse(self, what: str, way_out: str) -> NoReturn:
        raise SchemaError(f"window join {self.name!r}: {what}", way_out=way_out)


@dataclass(frozen=True)
class WindowAnswers:
    """The answers of a window join, in the order of windows."""

    name: str
    kernel: WindowView

    @property
    def schema(self) -> pa.Schema:
        return read_answers(self.kernel.spec, []).schema

    @property
    def needs_all(self) -> bool:
        return True

    def rows(self, reader: Reader) -> int:
        return _count(reader.runs(self.name, ANSWERS))

    def table(self, reader: Reader) -> pa.Table:
        return read_answers(self.kernel.spec, reader.runs(self.name, ANSWERS))

    def pieces(self, reader: Reader, rows: int) -> Iterator[pa.Table]:
        yield self.table(reader)

    def frame(self, reader: Reader, spark: SparkSession) -> DataFrame:
        states, root, spec = reader.states(self.name, ANSWERS), reader.root, self.kernel.spec
        return frames.answer_frame(spark, _COLUMNS, lambda: read_answers(spec, OPEN.of_all(root, states)))

    def changes(self, reader: Reader) -> pa.Table:
        return read_answers(self.kernel.spec, reader.changes(self.name), diff=DIFF)

    def at_the_end(self, reader: Reader) -> pa.Table:
        """The answers, given that no more rows will come."""
        state, answers = (reader.runs(self.name, part) for part in (ESTIMATOR_STATE, ANSWERS))
        return read_answers(self.kernel.spec, self.kernel.at_the_end(state, answers))

    def late(self, reader: Reader) -> pa.Table:
        """The rows that came after the horizon."""
        return read_late(self.kernel, reader.runs(self.name, LATE))

    def by_key(self, reader: Reader, ended: bool) -> pa.Table:
        """The result per key of each window."""
        restored, _ = self.kernel.restored(reader.runs(self.name, ESTIMATOR_STATE))
        groups = Groups(self.kernel, math.inf if ended else restored.closed)
        return groups.read(reader.runs(self.name, GROUPS), reader.runs(self.name, KEYS))


class WindowJoinView(AnswerHandle):
    """A maintained window join: one row per answered window."""

    def __init__(self, access: Access, entry: Entry) -> None:
        assert isinstance(entry.planned.answer, WindowAnswer)
        self._answers = WindowAnswers(entry.name, entry.planned.answer.kernel)
        super().__init__(access, entry, self._answers)

    def at_the_end(self) -> pa.Table:
        """The answers, given that no more rows will come; they include windows that no arrival has made due."""
        self._entry.check_there()
        return self._access.state.read(self._answers.at_the_end)

    def late(self) -> pa.Table:
        """The rows that came after the horizon, each with its side (left or right); they are in no answer."""
        self._entry.check_there()
        return self._access.state.read(self._answers.late)

    def by_key(self, *, ended: bool = False) -> pa.Table:
        """The exact result per key of each window over the rows that have arrived, and whether it is final.

        Only for a window join that was created with by_key=True. Keys without a match have no row. `ended` means that
        no more rows will come, so that all results are final.
        """
        self._entry.check_there()
        if not self._answers.kernel.by_key:
            raise SchemaError(
                f"window join {self.name!r} does not keep what each key comes to",
                way_out="create it with by_key=True",
            )
        return self._access.state.read(lambda reader: self._answers.by_key(reader, ended))

    def __repr__(self) -> str:
        return f"WindowJoinView({self.name!r}, {self.sql!r})"


def _count(runs: Sequence[StoredRun]) -> int:
    """How many rows some runs hold, copies counted."""
    return sum(int(run.payload[0].sum()) for run in runs)


def _names(on: Names) -> tuple[str, ...]:
    return (on,) if isinstance(on, str) else tuple(on)
