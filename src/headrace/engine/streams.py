"""Structured Streaming as a source of steps: one step per micro-batch, each exactly once.

Spark keeps the offsets of a source in its checkpoint, inside the location, and numbers its micro-batches. The number is
committed with the step it made, so a micro-batch that Spark hands over again after a crash is recognised and skipped.
Spark notes a micro-batch as done once its step returns. So the step is made safe from a power cut before that: Spark's
note might survive one that the step does not, and the rows would never come again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headrace.errors import HeadraceError, SchemaError, StepFailedError
from headrace.relation.schema import check_name


@dataclass(frozen=True)
class Source:
    """A streaming DataFrame that feeds a table."""

    name: str
    table: str
    frame: DataFrame


class Streams:
    """The streaming sources of one engine.

    Parameters
    ----------
    apply : makes a step, as `Engine.apply` does.
    sync : waits until all steps so far are safe from a power cut.
    lock : the lock that a step holds while it runs.
    checkpoints : the folder for Spark's offsets.
    """

    def __init__(
        self,
        apply: Callable[..., object],
        sync: Callable[[], None],
        lock: AbstractContextManager[object],
        checkpoints: Path,
    ) -> None:
        self._apply = apply
        self._sync = sync
        self._lock = lock
        self._checkpoints = checkpoints
        self._sources: dict[str, Source] = {}
        self._running: dict[str, StreamingQuery] = {}
        self._errors: dict[str, HeadraceError] = {}

    def add(self, table: str, frame: DataFrame, name: str) -> None:
        """Register a source; its name identifies its offsets, so it must stay the same across restarts."""
        check_name(name, "stream")
        if not frame.isStreaming:
            raise SchemaError(
                f"stream {name!r}: the DataFrame is not streaming",
                way_out="use spark.readStream, or engine.apply for a batch",
            )
        if name in self._sources:
            raise SchemaError(f"stream {name!r} exists", way_out="give each source of a table its own name")
        self._sources[name] = Source(name, table, frame)

    def start(self) -> None:
        """Start every source that is not running."""
        self._check_any()
        for source in self._sources.values():
            if source.name not in self._running:
                self._running[source.name] = self._writer(source).start()

    def process_available(self) -> None:
        """Run every source until it has no more data."""
        self._check_any()
        queries = {s.name: self._writer(s).trigger(availableNow=True).start() for s in self._sources.values()}
        for name, query in queries.items():
            self._await(name, query)

    def stop(self) -> None:
        """Stop the sources that run; an error that ended one of them is raised here."""
        running, self._running = self._running, {}
        for query in running.values():
            # A step holds the lock, so taking it means that no step is under way.
            with self._lock:
                query.stop()
        for name, query in running.items():
            if query.exception() is not None:
                self._raise(name, str(query.exception()))

    def _writer(self, source: Source) -> DataStreamWriter:
        def step(frame: DataFrame, number: int) -> None:
            try:
                self._apply({source.table: frame}, source=(source.name, number))
                self._sync()
            except HeadraceError as error:
                self._errors[source.name] = error
                raise

        checkpoint = self._checkpoints / source.name
        return source.frame.writeStream.foreachBatch(step).option("checkpointLocation", str(checkpoint))

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
