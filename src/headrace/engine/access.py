"""What handles get from an engine: definitions, the state and Spark, none of which they can change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.engine.catalogue import Catalogue
from headrace.engine.reader import Readers
from headrace.engine.spark_needed import SparkNeeded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.engine.calibrating import Calibration
    from headrace.engine.planning import Planner
    from headrace.thrifty.statistics import Statistics


@dataclass(frozen=True)
class SparkSide:
    """The part of an engine that needs Spark.

    Parameters
    ----------
    spark : the user's session, in which DataFrames are made.
    finishing : the engine's own session, in which Catalyst evaluates expressions of an answer.
    planner : gives EXPLAIN ANALYZE the costs of other strategies.
    calibration : what a row costs on this machine.
    """

    spark: SparkSession
    finishing: SparkSession
    planner: Planner
    calibration: Calibration


@dataclass(frozen=True)
class Access:
    """An engine, as its handles see it.

    Parameters
    ----------
    state : gives readers of the state.
    """

    catalogue: Catalogue
    state: Readers
    _with_spark: SparkSide | None = None  # None where a location is looked at without Spark (`looking`)

    def needing(self, why: str) -> SparkSide:
        """What only Spark can do; `why` it is needed is raised with SparkNeeded where there is none."""
        if self._with_spark is None:
            raise SparkNeeded(why)
        return self._with_spark

    def statistics(self) -> Statistics:
        """What is known of the tables at this moment."""
        from headrace.thrifty.statistics import Statistics

        schemas, latest = self.catalogue.schemas, self.state.latest
        rows = {table: latest.rows(table) for table in schemas}
        units = self.needing("what a row costs is the engine's").calibration.units
        return Statistics(schemas, rows, latest.rates, units)
