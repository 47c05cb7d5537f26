"""A window join in one process: rows come in, are spread over buckets, and answers come out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from headrace.relation import kernels
from headrace.window.answers import Answer, Answers
from headrace.window.arrivals import Arrivals
from headrace.window.estimate import Estimator
from headrace.window.spec import WindowSpec
from headrace.window.tally import Bucket, Tally

_SEED = np.uint64(0x9E3779B97F4A7C15)


class WindowJoin:
    """One window join."""

    def __init__(
        self, spec: WindowSpec, estimators: Mapping[str, Estimator], interval: float = 0.95, buckets: int = 1
    ) -> None:
        self.spec = spec
        self.answers = Answers(spec, estimators, interval)
        self.buckets = [Bucket(spec) for _ in range(buckets)]

    def feed(self, arrivals: Arrivals, until: int | None = None) -> Iterator[Answer]:
        """Take in rows; give all answers that are due by the last arrival, or by a later moment."""
        yield from self.answers.advance(self.tally(arrivals), until)
        if self.answers.closed is not None:
            for bucket in self.buckets:
                bucket.close(self.answers.closed)

    def tally(self, arrivals: Arrivals) -> Tally:
        """Take rows into their buckets."""
        if len(self.buckets) == 1:
            return self.buckets[0].add(arrivals)
        number = bucket_of(arrivals, len(self.buckets))
        return Tally.total([bucket.add(arrivals.take(number == i)) for i, bucket in enumerate(self.buckets)])


def bucket_of(arrivals: Arrivals, buckets: int) -> np.ndarray:
    """The bucket of each row, by its key."""
    lead, out = np.empty(len(arrivals), np.uint64), np.empty(len(arrivals), np.int32)
    kernels.fold(np.ascontiguousarray(arrivals.key), _SEED, lead)
    kernels.buckets_of(lead, buckets, out)
    return out
