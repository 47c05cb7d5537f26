"""Headrace keeps answers over changing data fresh on Apache Spark, at the cost of the change."""

from headrace.engine.engine import Engine, connect
from headrace.engine.explain import Explanation
from headrace.engine.handles import Table, View
from headrace.engine.step import Step
from headrace.errors import HeadraceError
from headrace.operators.aggregate import ViewChange

__all__ = ["Engine", "Explanation", "HeadraceError", "Step", "Table", "View", "ViewChange", "connect"]
__version__ = "0.1.0"
