"""`hr.window_join`: two DataFrames joined by windows of time. Streams are read live; bounded ones are replayed.

Rows of both sides go into one table, so that rows which arrive together are in one step. Two separate streams would
take turns, and the clock of the join would advance by one stream before the rows of the other were read.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.engine.engine import Engine
from headrace.engine.opening import check_classic, location_at
from headrace.engine.window_joins import WindowJoinView
from headrace.errors import SchemaError
from headrace.explain.report import Report
from headrace.remote.root import clear
from headrace.sql.session import quote
from headrace.window.spec import Aggregate

_NAME, _TABLE = "window_join", "arrivals"
_EVENT, _ARRIVAL, _VALUE = "event_time", "arrival_time", "value"
_SIDES = ("is_left", "is_right")


def window_join(
    left: DataFrame,
    right: DataFrame,
    *,
    on: str | Sequence[str],
    time: str,
    window: object,
    slide: object = None,
    emit_after: object = None,
    horizon: object = None,
    within: object = None,
    agg: str = "count",
    estimator: str = "auto",
    interval: float = 0.95,
    revisions: str = "estimate",
    by_key: bool = False,
    arrival: str | None = None,
    location: str | Path | None = None,
) -> WindowJoinStream:
    """Join two DataFrames by windows of time, and answer each window before all of its rows have come.

    A join of two streaming DataFrames is started and stopped; its state is at `location`, and a new join at the same
    location continues where the last one stopped. Two bounded DataFrames are replayed at once, to their end, in the
    order of `arrival`. Rows that cannot be right (no key or time, an event after its arrival) are set aside.

    Parameters
    ----------
    on, time, arrival : columns that both DataFrames have. Without `arrival`, rows of streams arrive when they are read.
    window, slide, emit_after, horizon, within, agg, estimator, interval, revisions, by_key : as for
        `Engine.window_join`.
    location : a folder for the state of a join of streams. Bounded DataFrames need one on a cluster only: a folder that
        all nodes see, in which they have room until the join is closed or forgotten.

    The columns of `to_df()`: `window_start`, `window_end`, `emitted_at`, `value`, `low`, `high`, `observed`, `final`.
    """
    check_classic("the left DataFrame of the window join", left)
    check_classic("the right DataFrame of the window join", right)
    keys = (on,) if isinstance(on, str) else tuple(on)
    asked = {"window": window, "slide": slide, "emit_after": emit_after, "horizon": horizon, "agg": agg}
    asked |= {"within": within, "estimator": estimator, "interval": interval, "revisions": revisions, "by_key": by_key}
    sides = _Sides(left, right, keys, time, arrival, Aggregate.parse(agg))
    if sides.is_streaming():
        if location is None:
            raise SchemaError(
                "a window join of streams has no location", way_out="give location=, a folder for what it must remember"
            )
        return WindowJoinStream(sides, location, asked)
    if arrival is None:
        raise SchemaError(
            "a window join of bounded DataFrames has no arrival times",
            way_out="give arrival=, the column that says when a row arrived",
        )
    master = str(left.sparkSession.sparkContext.master)
    if location is None and not master.startswith("local"):
        raise SchemaError(
            f"a window join of bounded DataFrames has no room for its state that the workers of {master} see",
            way_out="give location=, a folder that all nodes see; what is written there goes with the join",
        )
    return WindowJoinStream(sides, location or tempfile.gettempdir(), asked)


@dataclass(frozen=True)
class _Sides:
    """The two DataFrames as one: the rows of the one table that the join reads."""

    left: DataFrame
    right: DataFrame
    keys: tuple[str, ...]
    time: str
    arrival: str | None
    aggregate: Aggregate

    def is_streaming(self) -> bool:
        if self.left.isStreaming != self.right.isStreaming:
            raise SchemaError(
                "one side of the window join is a stream, the other is not",
                way_out="make streams of both, or neither",
            )
        return self.left.isStreaming

    @property
    def ddl(self) -> str:
        """The columns of the table."""
        taken = {_EVENT, _ARRIVAL, _VALUE, *_SIDES} & {key.lower() for key in self.keys}
        if taken:
            raise SchemaError(
                f"the key {taken.pop()!r} has a name that the window join uses itself", way_out="rename the column"
            )
        types = [self._types(frame) for frame in (self.left, self.right)]
        for key in self.keys:
            if types[0][key] != types[1][key]:
                raise SchemaError(
                    f"the key {key!r} is {types[0][key]} on the left and {types[1][key]} on the right",
                    way_out="cast one of them",
                )
        columns = [f"{quote(key)} {types[0][key]}" for key in self.keys]
        columns += [f"{_EVENT} TIMESTAMP", f"{_ARRIVAL} TIMESTAMP", f"{_VALUE} DOUBLE"]
        return ", ".join([*columns, *(f"{side} BOOLEAN" for side in _SIDES)])

    def rows(self) -> DataFrame:
        """The rows of both sides."""
        left, right = (self._rows(number, frame) for number, frame in enumerate((self.left, self.right)))
        return left.unionAll(right)

    def _rows(self, number: int, frame: DataFrame) -> DataFrame:
        mine = self.aggregate.column is not None and self.aggregate.side == number
        value = _column(self.aggregate.column or "") if mine else F.lit(0.0)
        arrival = F.current_timestamp() if self.arrival is None else _column(self.arrival)
        return frame.select(
            *(_column(key).alias(key) for key in self.keys),
            _column(self.time).cast("timestamp").alias(_EVENT),
            arrival.cast("timestamp").alias(_ARRIVAL),
            value.cast("double").alias(_VALUE),
            *(F.lit(side == number).alias(name) for side, name in enumerate(_SIDES)),
        )

    def _types(self, frame: DataFrame) -> dict[str, str]:
        number = 0 if frame is self.left else 1
        wanted = [*self.keys, self.time, *([self.arrival] if self.arrival else [])]
        if self.aggregate.column is not None and self.aggregate.side == number:
            wanted.append(self.aggregate.column)
        types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
        for name in wanted:
            if name not in types:
                raise SchemaError(
                    f"the {('left', 'right')[number]} side of the window join has no column {name!r}",
                    way_out=f"it has {', '.join(types)}",
                )
        return types


class WindowJoinStream:
    """A window join of two DataFrames; close it, or use it in a `with` statement."""

    def __init__(self, sides: _Sides, location: str | Path, asked: dict[str, Any]) -> None:
        columns = sides.ddl
        self._has_ended = not sides.is_streaming()
        folder = _room_in(location) if self._has_ended else location
        self._engine = Engine(sides.left.sparkSession, folder, on_bad_rows="quarantine")
        # A join that has ended need not be closed: its folder is removed with the object.
        self._end = weakref.finalize(self, _end, self._engine, folder) if self._has_ended else None
        try:
            self._engine.table(_TABLE, columns, append_only=True, keep_rows=False)
            side = "left" if sides.aggregate.side == 0 else "right"
            if sides.aggregate.column is not None:
                asked = asked | {"agg": f"{sides.aggregate.function}({side}.{_VALUE})"}
            self._view: WindowJoinView = self._engine.window_join(
                _NAME, _TABLE, _TABLE, on=sides.keys, time=_EVENT, arrival=_ARRIVAL, only=_SIDES, **asked
            )
            if self._has_ended:
                self._engine.apply({_TABLE: sides.rows()})
            else:
                self._engine.stream(_TABLE, sides.rows())
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        """Start to read both streams, until `stop`."""
        if not self._has_ended:
            self._engine.start()

    def stop(self) -> None:
        """Stop reading; an error that ended a stream is raised here."""
        if not self._has_ended:
            self._engine.stop()

    def process_available(self) -> None:
        """Read both streams until they have no more rows for now."""
        if not self._has_ended:
            self._engine.process_available()

    def to_df(self) -> DataFrame:
        """The answers so far; of bounded DataFrames, those at the end."""
        return self._engine.spark.createDataFrame(self.to_arrow()) if self._has_ended else self._view.to_df()

    def to_arrow(self) -> pa.Table:
        """The answers so far, as an Arrow table."""
        return self._view.at_the_end() if self._has_ended else self._view.to_arrow()

    def to_pandas(self) -> pd.DataFrame:
        """The answers so far, as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def by_key(self) -> pa.Table:
        """The result per key of each window, if the join was made with by_key=True."""
        return self._view.by_key(ended=self._has_ended)

    def changes(self) -> pa.Table:
        """The changes of the last micro-batch, with `__diff`."""
        return self._view.changes()

    def late(self) -> pa.Table:
        """Rows that came after the horizon."""
        return self._view.late()

    def explain(self) -> Report:
        """Say how the join is kept, and what it costs."""
        return self._view.explain()

    def quarantine(self) -> pa.Table:
        """Rows that cannot be right, with the reason."""
        return self._engine.quarantine(_TABLE)

    def close(self) -> None:
        """Stop, and release the location."""
        if self._end is not None:
            self._end()
        self._engine.close()

    def __enter__(self) -> WindowJoinStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _room_in(location: str | Path) -> str | Path:
    """A location of its own for a join that ends, in another folder or below another URL."""
    above = location_at(location)
    if above.remote is not None:
        return f"{above.shown}/headrace-window-join-{uuid.uuid4().hex}"
    return Path(tempfile.mkdtemp(prefix="headrace-window-join-", dir=above.root))


def _end(engine: Engine, folder: str | Path) -> None:
    place = engine._store.location.remote
    engine.close()
    if place is None:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        clear(place)


def _column(name: str) -> Any:
    return F.col(quote(name))
