"""The durations of micro-batches, as Spark reports them to listeners."""

from __future__ import annotations

import threading
import time

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from headrace.errors import HeadraceError

_PATIENCE = 30.0  # seconds that a report may be late


class Progress(StreamingQueryListener):
    """Records the duration of every micro-batch that had rows."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds: dict[int, float] = {}

    def seconds(self, batches: int) -> list[float]:
        """Return the durations of the first `batches` micro-batches; wait for their reports, which come later."""
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            with self._lock:
                if len(self._seconds) >= batches:
                    return [self._seconds[batch] for batch in sorted(self._seconds)][:batches]
            time.sleep(0.05)
        raise HeadraceError(
            f"Spark reported {len(self._seconds)} of {batches} micro-batches.", way_out="Run the benchmark again."
        )

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        if progress.numInputRows:
            with self._lock:
                self._seconds[progress.batchId] = progress.batchDuration / 1e3

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass
