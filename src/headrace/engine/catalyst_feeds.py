"""Feeds between two operators that only Spark can evaluate: Catalyst evaluates them in the middle of a step.

Changed rows of all buckets are evaluated together, so a step pays for one evaluation, however many buckets there are.
Few rows are evaluated in the driver's JVM, without a job; many are evaluated by the tasks that have them.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.engine.definition import PlannedView
from headrace.engine.step_runner import translating_spark_errors
from headrace.operators.feed_rows import CARRIED
from headrace.plan.tree import FeedId
from headrace.sql.evaluate import CatalystView


class BetweenOperators:
    """Evaluates feeds of views for one step."""

    def __init__(self, views: Mapping[str, PlannedView]) -> None:
        self._views = views

    def values(self, view: str, feed: FeedId, given: pa.Table) -> pa.Table:
        """Evaluate a feed on rows that the driver has."""
        values = translating_spark_errors(lambda: self._catalyst(view).between_values(given, feed))
        return pa.table({**values, **{name: given.column(name) for name in CARRIED}})

    def frame(self, view: str, feed: FeedId, given: DataFrame) -> DataFrame:
        """Evaluate a feed on the rows of a DataFrame."""
        columns = translating_spark_errors(lambda: self._catalyst(view).between_columns(given, feed))
        return given.select(*columns, *(F.col(name) for name in CARRIED))

    def _catalyst(self, view: str) -> CatalystView:
        analysed = self._views[view].analysed
        assert analysed is not None
        return analysed.catalyst
