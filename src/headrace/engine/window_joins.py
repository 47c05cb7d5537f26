"""Window joins of two append-only tables: how they are planned, read and explained."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
from pyspark.sql import DataFrame

from headrace.engine import frames
from headrace.engine.definition import Definition, PlannedView
from headrace.engine.handles import Pin, View
from headrace.errors import SchemaError
from headrace.plan.explained import Explained
from headrace.plan.expression import column
from headrace.relation import runfile
from headrace.relation.duration import Duration
from headrace.relation.schema import DIFF, Column, TableSchema
from headrace.relation.types import SqlType
from headrace.runtime.log import BucketState, Snapshot
from headrace.runtime.openruns import OPEN
from headrace.runtime.program import view_arrangement
from headrace.window.emitted import ANSWERS, read_answers
from headrace.window.estimators import make_estimator
from headrace.window.groups import GROUPS, KEYS, Groups
from headrace.window.late import read_late
from headrace.window.spec import WindowSpec, duration_of
from headrace.window.window_view import LATE, LEARNED, REVISIONS, Side, WindowView

if TYPE_CHECKING:
    from headrace.engine.engine import Engine

WINDOW_JOIN = "window join"
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
    """What was asked for, as the commit log keeps it."""
    window = duration_of("window", asked["window"])
    text = f"{left} JOIN {right} USING ({', '.join(_names(asked['on']))}) in windows of {window}"
    plain = {
        what: str(duration_of(what, given)) if what in ("window", "slide", "emit_after", "horizon", "within") else given
        for what, given in asked.items()
        if given is not None and given is not False
    }
    plain["on"] = list(_names(asked["on"]))
    if "only" in plain:
        plain["only"] = list(plain["only"])
    return Definition(WINDOW_JOIN, text, {"left": left, "right": right, **plain})


def plan_window_join(name: str, definition: Definition, tables: Mapping[str, TableSchema], seed: int) -> PlannedView:
    """Plan a window join; refused where its tables cannot be joined by windows."""
    asked = dict(definition.asked)
    spec = WindowSpec.parse(
        asked["window"],
        slide=asked.get("slide"),
        emit_after=asked.get("emit_after"),
        horizon=asked.get("horizon"),
        agg=asked["agg"],
        within=asked.get("within"),
    )
    make_estimator(asked["estimator"], spec, interval=asked["interval"])  # says what is wrong with either
    if asked["revisions"] not in REVISIONS:
        raise SchemaError(
            f"window join {name!r}: revisions={asked['revisions']!r} is not known",
            way_out=f"use one of {', '.join(map(repr, REVISIONS))}",
        )
    by_key = asked.get("by_key", False)
    if not isinstance(by_key, bool):
        raise SchemaError(f"window join {name!r}: by_key={by_key!r} is not known", way_out="use True or False")
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
        asked["estimator"],
        float(asked["interval"]),
        asked["revisions"],
        by_key=by_key,
    )
    return PlannedView(replace(definition, chosen={"strategy": WINDOW_JOIN}), None, kernel)


@dataclass(frozen=True)
class _Reader:
    """Finds the columns of a window join."""

    name: str
    tables: Mapping[str, TableSchema]

    def side(self, number: int, asked: Mapping[str, Any], spec: WindowSpec) -> Side:
        table = asked[("left", "right")[number]]
        schema = self.tables.get(table)
        if schema is None:
            self._refuse(f"there is no table {table!r}", "register it with engine.table(..., append_only=True)")
        if not schema.append_only:
            self._refuse(
                f"rows of table {table!r} may be deleted, and what has been estimated cannot be taken back",
                f"register {table!r} with append_only=True",
            )
        keys = tuple(self._column(schema, key, "a key", but=_NO_KEYS) for key in asked["on"])
        event, arrival = (self._column(schema, asked[what], "a time", only=_TIMES) for what in ("time", "arrival"))
        aggregate, value = spec.aggregate, None
        if aggregate.column is not None and aggregate.side == number:
            value = self._column(schema, aggregate.column, "a number", only=_NUMBERS)
        only = asked.get("only")
        of_side = None if only is None else self._column(schema, only[number], "a condition", only=("boolean",))
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
class WindowJoinExplanation(Explained):
    """How a window join is kept. `str()` is for people, `to_dict()` for programs."""

    view: str
    sql: str
    strategy: str
    why: str
    aggregate: str
    windows: str
    answered: str
    complete: str
    estimator: str
    interval: float
    revisions: str
    open_entries: int
    too_late: int
    missed: int
    answers: int
    state_bytes: int
    last_step: dict[str, Any]

    def __str__(self) -> str:
        lines = [
            f"window join {self.view}: {self.aggregate} of {self.sql}",
            f"  windows    {self.windows}",
            f"  answered   {self.answered}: what has arrived, and by {self.estimator!r} what is still to come, with an",
            f"             interval that should hold {self.interval:.0%} of the time; told: {self.revisions}",
            f"  complete   {self.complete}",
            f"  state      {self.state_bytes:,} bytes: {self.open_entries:,} entries of open windows, {self.answers:,} "
            f"answers, what was learned, {self.too_late:,} rows that came too late",
            "  a step     costs in proportion to the rows that arrive and the windows that are due",
        ]
        if self.missed:
            lines.append(
                f"  missed     {self.missed:,} rows of windows that were complete already: time had passed in a step "
                "before. Rows that arrive together belong into one step"
            )
        if self.last_step:
            lines.append(f"  last step  {self.last_step['text']}")
        return "\n".join(lines)


class WindowJoinView(View):
    """A maintained window join: a row for each window that has been answered."""

    def __init__(self, engine: Engine, name: str, planned: PlannedView) -> None:
        assert isinstance(planned.kernel, WindowView)
        self._engine = engine
        self._kernel = planned.kernel
        self.planned = planned
        self.name = name
        self.sql = planned.definition.sql

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the view's columns."""
        return read_answers(self._kernel.spec, []).schema

    @property
    def rows(self) -> int:
        """How many windows have been answered."""
        self._check_there()
        return self._engine._store.read(lambda snapshot: self._count(snapshot, ANSWERS))

    def to_arrow(self) -> pa.Table:
        """The answers as of the last step, in the order of windows."""
        self._check_there()
        return self._engine._store.read(lambda s: read_answers(self._kernel.spec, self._runs(s, ANSWERS)))

    def to_df(self) -> DataFrame:
        """The answers as of the last step, as a Spark DataFrame; later steps do not change it."""
        self._check_there()
        owner = Pin()
        buckets = self._buckets(self._engine._store.pin_for(owner), ANSWERS)
        spec, root = self._kernel.spec, str(self._engine.location)
        frame = frames.answer_frame(
            self._engine.spark,
            _COLUMNS,
            lambda: read_answers(spec, [run for bucket in buckets for run in OPEN.of(root, bucket)]),
        )
        frame.__dict__["_headrace_pin"] = owner
        return frame

    def at_the_end(self) -> pa.Table:
        """The answers if no row is to come any more: also of windows whose moment no arrival has reached."""
        self._check_there()
        return self._engine._store.read(self._read_at_the_end)

    def changes(self) -> pa.Table:
        """What the last step changed: answers that are new with `__diff` +1, those that were replaced with -1."""
        self._check_there()
        return self._engine._store.read(self._read_changes)

    def late(self) -> pa.Table:
        """The rows that came after the horizon, with the side that they are of; they are in no answer."""
        self._check_there()
        return self._engine._store.read(lambda s: read_late(self._kernel, self._runs(s, LATE)))

    def by_key(self, *, ended: bool = False) -> pa.Table:
        """What each key of each window comes to by what has arrived, and whether that is final; exact, not estimated.

        Only for a window join that was created with by_key=True. Keys without a match have no row. With `ended`, no row
        is to come any more, and all is final.
        """
        self._check_there()
        if not self._kernel.by_key:
            raise SchemaError(
                f"window join {self.name!r} does not keep what each key comes to",
                way_out="create it with by_key=True",
            )
        return self._engine._store.read(lambda snapshot: self._read_by_key(snapshot, ended))

    def explain(self) -> WindowJoinExplanation:  # type: ignore[override]
        """Say how the window join is kept, and what it costs."""
        self._check_there()
        return self._engine._store.read(self._explained)

    def _explained(self, snapshot: Snapshot) -> WindowJoinExplanation:
        kernel = self._kernel
        spec, state = kernel.spec, {part: self._buckets(snapshot, part) for part in kernel.arrangements}
        times = [Duration(t) for t in (spec.length, spec.slide, spec.emit_after, spec.horizon)]
        slides = "tumble" if spec.slide == spec.length else f"slide by {times[1]}"
        return WindowJoinExplanation(
            view=self.name,
            sql=self.sql,
            strategy=WINDOW_JOIN,
            why="it was asked for",
            aggregate=str(spec.aggregate),
            windows=f"of {times[0]}, which {slides}" + self._near(),
            answered=f"{times[2]} after the start of a window",
            complete=f"{times[3]} after the end of a window; a row that is later is set aside",
            estimator=kernel.estimator,
            interval=kernel.interval,
            revisions=kernel.revisions,
            open_entries=sum(bucket.live for part in kernel.part.arrangements for bucket in state[part]),
            too_late=self._count(snapshot, LATE),
            missed=kernel.learned(self._runs(snapshot, LEARNED))[0].missed,
            answers=self._count(snapshot, ANSWERS),
            state_bytes=sum(run.bytes for buckets in state.values() for b in buckets for run in b.runs),
            last_step=snapshot.summary,
        )

    def _near(self) -> str:
        within = self._kernel.spec.within
        return "" if within is None else f"; rows meet that are at most {Duration(within)} apart"

    def finals(self, since: int = 0) -> pa.Table:
        """A window join tells what is final itself."""
        raise SchemaError(
            f"{self.name!r} is a window join, and its answers say whether they are final",
            way_out="create it with revisions='final' or 'all', and read the rows with final = true",
        )

    def analyze(self) -> Any:
        """There is nothing to compare a window join with."""
        raise SchemaError(
            f"{self.name!r} is a window join, which is kept in one way only", way_out="use explain() instead"
        )

    def _batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        yield from self.to_arrow().to_batches(max_chunksize=rows)

    def _buckets(self, snapshot: Snapshot, part: str) -> list[BucketState]:
        return list(snapshot.arrangements.get(view_arrangement(self.name, part), {}).values())

    def _count(self, snapshot: Snapshot, part: str) -> int:
        return sum(int(run.payload[0].sum()) for run in self._runs(snapshot, part))

    def _runs(self, snapshot: Snapshot, part: str) -> list[Any]:
        root = str(self._engine.location)
        return [run for bucket in self._buckets(snapshot, part) for run in OPEN.of(root, bucket)]

    def _read_at_the_end(self, snapshot: Snapshot) -> pa.Table:
        runs = self._kernel.at_the_end(self._runs(snapshot, LEARNED), self._runs(snapshot, ANSWERS))
        return read_answers(self._kernel.spec, runs)

    def _read_by_key(self, snapshot: Snapshot, ended: bool) -> pa.Table:
        learned, _ = self._kernel.learned(self._runs(snapshot, LEARNED))
        groups = Groups(self._kernel, math.inf if ended else learned.closed)
        return groups.read(self._runs(snapshot, GROUPS), self._runs(snapshot, KEYS))

    def _read_changes(self, snapshot: Snapshot) -> pa.Table:
        names = snapshot.changes.get(self.name, [])
        runs = [runfile.read(self._engine.location / "runs" / name) for name in names]
        for run in runs:
            run.check()
        return read_answers(self._kernel.spec, runs, diff=DIFF)


def _names(on: Names) -> tuple[str, ...]:
    return (on,) if isinstance(on, str) else tuple(on)
