"""What handles get from an engine: definitions, the state and Spark, none of which they can change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from headrace.engine.calibrating import Calibration
from headrace.engine.catalogue import Catalogue
from headrace.engine.reader import Readers
from headrace.thrifty.statistics import Statistics

if TYPE_CHECKING:
    from headrace.engine.planning import Planner


@dataclass(frozen=True)
class Access:
    """An engine, as its handles see it.

    Parameters
    ----------
    state : gives readers of the state.
    spark : the user's session, in which DataFrames are made.
    finishing : the engine's own session, in which Catalyst evaluates expressions of an answer.
    planner : gives EXPLAIN ANALYZE the costs of other strategies.
    calibration : what a row costs on this machine.
    """

    catalogue: Catalogue
    state: Readers
    spark: SparkSession
    finishing: SparkSession
    planner: Planner
    calibration: Calibration

    def statistics(self) -> Statistics:
        """What is known of the tables at this moment."""
        schemas, latest = self.catalogue.schemas, self.state.latest
        rows = {table: latest.rows(table) for table in schemas}
        return Statistics(schemas, rows, latest.rates, self.calibration.units)
