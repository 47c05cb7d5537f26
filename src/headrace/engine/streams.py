"""Structured Streaming as a source of steps: one step per micro-batch, each exactly once.

Spark keeps the offsets of a source in its checkpoint, inside the location, and numbers its micro-batches. The number is
committed with the step it made, so a micro-batch that Spark hands over again after a crash is recognised and skipped.
Spark notes a micro-batch as done once its step returns. So the step is made safe from a power cut before that: Spark's
note might survive one that the step does not, and the rows would never come again.

While a source runs, it announces its table and how many rows its next micro-batch may bring: as many as it is said to
have, or as its last ones had.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headrace.engine.step import Step
from headrace.errors import HeadraceError, SchemaError, StepFailedError, StorageError
from headrace.relation.schema import check_name
from headrace.runtime.callbacks import close_idle
from headrace.runtime.location import Location
from headrace.thrifty.keep.change import Change, Rate


@dataclass(frozen=True)
class Source:
    """A streaming DataFrame that feeds a table."""

    name: str
    table: str
    frame: DataFrame
    rows_per_batch: int | None = None
    checkpoint: str | None = None
    how: Mapping[str, str] = field(default_factory=dict)  # what its rows are, as `Engine.apply` is told


class Streams:
    """The streaming sources of one engine.

    Parameters
    ----------
    apply : makes a step, as `Engine.apply` does.
    sync : waits until all steps so far are safe from a power cut.
    announce : says what a source will bring, as `Engine.announce` does.
    lock : the lock that a step holds while it runs.
    location : has Spark's offsets, in its folder `checkpoints` unless a source has another one.
    """

    def __init__(
        self,
        apply: Callable[..., Step],
        sync: Callable[[], None],
        announce: Callable[[str, dict[str, int | tuple[int, int] | None] | None], None],
        lock: AbstractContextManager[object],
        location: Location,
    ) -> None:
        self._apply = apply
        self._sync = sync
        self._announce = announce
        self._lock = lock
        self._location = location
        self._sources: dict[str, Source] = {}
        self._running: dict[str, StreamingQuery] = {}
        self._errors: dict[str, HeadraceError] = {}
        self._rates: dict[str, Rate] = {}

    def add(
        self,
        table: str,
        frame: DataFrame,
        name: str,
        rows_per_batch: int | None = None,
        checkpoint: str | Path | None = None,
        how: Mapping[str, str] | None = None,
    ) -> None:
        """Register a source; its name identifies its offsets, so it must stay the same across restarts."""
        check_name(name, "stream")
        if not frame.isStreaming:
            raise SchemaError(
                f"stream {name!r}: the DataFrame is not streaming",
                way_out="use spark.readStream, or engine.apply for a batch",
            )
        if name in self._sources:
            raise SchemaError(f"stream {name!r} exists", way_out="give each source of a table its own name")
        if rows_per_batch is not None and rows_per_batch < 1:
            raise SchemaError(
                f"stream {name!r}: a micro-batch of {rows_per_batch} rows brings nothing",
                way_out="give rows_per_batch of 1 or more, or leave it out",
            )
        self._sources[name] = Source(
            name, table, frame, rows_per_batch, None if checkpoint is None else str(checkpoint), dict(how or {})
        )

    def start(self) -> None:
        """Start every source that is not running."""
        self._check_any()
        for source in self._sources.values():
            if source.name not in self._running:
                self._say(source)
                self._running[source.name] = self._started(source, self._writer(source))

    def process_available(self) -> None:
        """Run every source until it has no more data."""
        self._check_any()
        try:
            for source in self._sources.values():
                self._say(source)
            queries = {
                s.name: self._started(s, self._writer(s).trigger(availableNow=True)) for s in self._sources.values()
            }
            for name, query in queries.items():
                self._await(name, query)
                self._announce(name, None)
        finally:
            self._fall_silent(self._sources)
            self._close_idle(self._sources)

    def stop(self) -> None:
        """Stop the sources that run; an error that ended one of them is raised here."""
        running, self._running = self._running, {}
        for query in running.values():
            # A step holds the lock, so taking it means that no step is under way.
            with self._lock:
                query.stop()
        self._fall_silent(running)
        self._close_idle(running)
        for name, query in running.items():
            if query.exception() is not None:
                self._raise(name, str(query.exception()))

    def _writer(self, source: Source) -> DataStreamWriter:
        def step(frame: DataFrame, number: int) -> None:
            try:
                # Whoever stops the stream waits for the lock, so neither a sync nor an announcement follows its end.
                with self._lock:
                    made = self._apply({source.table: frame}, source=(source.name, number), **source.how)
                    self._watch(source, made)
                    self._sync()
            except HeadraceError as error:
                self._errors[source.name] = error
                self._announce(source.name, None)
                raise

        checkpoint = source.checkpoint or self._checkpoint(source.name)
        return source.frame.writeStream.foreachBatch(step).option("checkpointLocation", checkpoint)

    def _checkpoint(self, name: str) -> str:
        """Where Spark keeps the offsets of a source: it writes them itself, so elsewhere it gets the URL."""
        remote = self._location.remote
        if remote is None:
            return str(self._location.checkpoints / name)
        return f"{remote.url.replace('s3://', 's3a://', 1)}/checkpoints/{name}"

    def _started(self, source: Source, writer: DataStreamWriter) -> StreamingQuery:
        try:
            return writer.start()
        except (Py4JError, PySparkException) as error:
            if self._location.remote is None or source.checkpoint is not None:
                raise
            raise StorageError(
                f"Spark cannot write the offsets of stream {source.name!r} to {self._checkpoint(source.name)}: "
                f"{_first_line(error)}",
                way_out="give Spark that file system (for s3a, the package hadoop-aws of its Hadoop's version), or "
                "name a folder that it can write: engine.stream(..., checkpoint=...)",
            ) from error

    def _watch(self, source: Source, made: Step) -> None:
        """Announce what follows from one more micro-batch."""
        self._fall_silent([name for name, query in list(self._running.items()) if not query.isActive])
        rows = made.rows.get(source.table, 0)
        if rows:
            rate = self._rates.get(source.name, Rate())
            self._rates[source.name] = rate.after({source.table: Change(float(rows))})
            self._say(source)

    def _say(self, source: Source) -> None:
        """Announce the table of a source, and the rows of a micro-batch as far as they are known."""
        rows = source.rows_per_batch
        if rows is None and source.name in self._rates:
            rows = round(self._rates[source.name].per_batch()[source.table].rows)
        self._announce(source.name, {source.table: rows})

    def _fall_silent(self, names: Collection[str]) -> None:
        for name in names:
            self._announce(name, None)

    def _close_idle(self, names: Collection[str]) -> None:
        """Close what streams that have ended leave between the JVM and Python; all are of one session."""
        for name in list(names)[:1]:
            close_idle(self._sources[name].frame.sparkSession)

    def _await(self, name: str, query: StreamingQuery) -> None:
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            self._raise(name, str(error))

    def _raise(self, name: str, text: str) -> None:
        # The step's own error says more than the text Spark wraps it in.
        if name in self._errors:
            raise self._errors.pop(name)
        raise StepFailedError(
            f"stream {name!r} failed: {text}", way_out="fix its source and start it again; it resumes where it was"
        )

    def _check_any(self) -> None:
        if not self._sources:
            raise SchemaError("no stream is registered", way_out="register one with engine.stream(table, streaming_df)")


def _first_line(error: Exception) -> str:
    """What Spark says, without the stack traces that follow; of an error of Java, what Java says."""
    java = getattr(error, "java_exception", None)
    return str(error if java is None else java.toString()).strip().splitlines()[0]
