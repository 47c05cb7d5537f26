"""What handles get from an engine: definitions, the state and Spark, and the few things that they may have it do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from headrace.engine.catalogue import Catalogue
from headrace.engine.reader import Readers
from headrace.engine.spark_needed import SparkNeeded
from headrace.errors import StorageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.engine.calibrating import Calibration
    from headrace.engine.planning import Planner
    from headrace.engine.step import Step
    from headrace.relation.duration import Duration
    from headrace.thrifty.goal import Freshness
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


class Control(Protocol):
    """What a handle may have its engine do."""

    def apply(self, changes: Mapping[str, Any]) -> Step:
        """Apply changes to tables."""
        ...

    def refresh(self, *names: str) -> Step:
        """Bring views up to date."""
        ...

    def set_goal(self, name: str, freshness: Freshness | None) -> None:
        """Change how fresh a view has to be."""
        ...

    def set_idle_after(self, name: str, idle_after: Duration | None) -> None:
        """Change after how long without rows a view lets go of state."""
        ...


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
    _control: Control | None = None  # None where a location is only looked at

    @property
    def may_write(self) -> bool:
        """Whether handles may have the state changed."""
        return self._control is not None and not self.state.read_only

    @property
    def control(self) -> Control:
        """What changes the state."""
        if self._control is None:
            raise StorageError("this location is only looked at", way_out="open it with hr.connect or hr.Engine")
        return self._control

    def needing(self, why: str) -> SparkSide:
        """What only Spark can do; `why` it is needed is raised with SparkNeeded where there is none."""
        if self._with_spark is None:
            raise SparkNeeded(why)
        return self._with_spark

    def statistics(self) -> Statistics:
        """What is known of the tables at this moment."""
        from headrace.thrifty.cost import UNITS
        from headrace.thrifty.statistics import Statistics

        schemas, latest = self.catalogue.schemas, self.state.latest
        rows = {table: latest.rows(table) for table in schemas}
        units = UNITS if self._with_spark is None else self._with_spark.calibration.units
        return Statistics(schemas, rows, latest.rates, units)
