"""Rings of the user as aggregate functions of Spark.

Spark's analyser has to know a name before it can read a query that uses it. So a ring becomes an aggregate function
over Arrow columns, which computes by the ring itself what a view keeps: each row is a product of lifted arguments, and
a group is the sum of its rows. Headrace reads it in plans, and Spark can run it, as it does for `refresh="full"`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.functions import arrow_udf

from headrace.errors import SchemaError, StepFailedError
from headrace.plan.view import IN_RING, Aggregate
from headrace.relation.types import SqlType
from headrace.rings import registry
from headrace.rings.named import NamedRing, named, sql_type_of
from headrace.sql.jvm import Catalyst, Jvm, items, kind
from headrace.sql.refusals import Refusals

IN_VIEWS = "sums in a ring are kept by views over rings"
WAY_OUT = "use strategy='factorized' over tables and their inner joins"
_FUNCTION = "PythonUDAF"


class SqlRings:
    """The rings that one Spark session knows as functions."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._known: dict[str, NamedRing] = {}

    def make_known(self, sql: str) -> None:
        """Let the session know all registered rings that a query calls."""
        for name, ring in called(sql).items():
            if self._known.get(name) is None or self._known[name].ring is not ring:
                if name not in self._known:
                    check_no_function(self._spark, name)
                made = named(name, ring)
                made.__dict__["ring"] = ring
                make: Any = arrow_udf  # its types ask for the kind of the function, which it reads from annotations
                self._spark.udf.register(name, make(_sum_in(made), sql_type_of(ring)))
                self._known[name] = made

    def of_call(self, function: Jvm) -> NamedRing | None:
        """The ring that an aggregate function of a plan stands for, if it stands for one."""
        return self._known.get(str(function.name()).lower()) if kind(function) == _FUNCTION else None

    def in_plan(self, plan: Jvm) -> dict[str, NamedRing]:
        """The rings that a plan sums in, by name, those of its subqueries included."""
        if not self._known:
            return {}
        found = {}
        for part in [plan, *items(plan.subqueriesAll())]:
            for node in _nodes(part):
                for expression in items(node.expressions()):
                    for call in _nodes(expression):
                        ring = self.of_call(call)
                        if ring is not None:
                            found[ring.name] = ring
        return found


def called(sql: str) -> dict[str, Any]:
    """The registered rings whose names a text has in front of a parenthesis."""
    rings = registry.registered()
    if not rings:
        return {}
    words = {word.lower() for word in re.findall(r"\b(\w+)`?\s*\(", sql)}
    return {name: ring for name, ring in rings.items() if name in words}


def check_no_function(spark: SparkSession, name: str) -> None:
    """Refuse the name of a function that Spark has itself."""
    catalyst = Catalyst(spark).jvm.org.apache.spark.sql.catalyst
    if catalyst.analysis.FunctionRegistry.builtin().functionExists(catalyst.FunctionIdentifier(name)):
        raise is_function(name)


def is_function(name: str) -> SchemaError:
    """Return an error: a ring cannot have this name."""
    return SchemaError(
        f"Spark has a function {name!r}, so no ring can have this name", way_out="choose another name for the ring"
    )


def refuse_rings(aggregates: Iterable[Aggregate], refusals: Refusals, why: str) -> None:
    """Refuse sums in rings where they are not kept."""
    for aggregate in aggregates:
        if aggregate.function == IN_RING:
            refusals.refuse_for_now(aggregate.sql, why, WAY_OUT)


def check_arguments(values: list[Jvm], types: list[SqlType | None], call: Jvm, refusals: Refusals) -> None:
    """Refuse arguments that no ring can lift."""
    if not values:
        refusals.refuse(refusals.text(call), "it has nothing to multiply", "give it at least one column")
    for value, type in zip(values, types, strict=True):
        if type is None or not (type.is_integer or type.is_floating):
            refusals.refuse(
                f"{refusals.text(value)} of type {value.dataType().simpleString()} in {refusals.text(call)}",
                "a ring lifts doubles and integers",
                f"write CAST({refusals.text(value)} AS DOUBLE)",
            )


def check_for_spark(node: Jvm, refusals: Refusals) -> None:
    """Refuse an aggregate that Spark does not compute as SQL says, because functions in Python are apart there."""
    if kind(node) != "Aggregate":
        return
    calls = [n for e in items(node.aggregateExpressions()) for n in _nodes(e) if kind(n) == "AggregateExpression"]
    own = [call for call in calls if refusals.ring_of(call.aggregateFunction()) is not None]
    for call in own:
        text = refusals.text(call)
        if not items(node.groupingExpressions()):
            refusals.refuse(
                f"{text} without GROUP BY",
                "Spark gives no row where there are no rows, and not NULL, for an aggregate in Python",
                "leave refresh out, or group by a column",
            )
        if len(own) < len(calls):
            refusals.refuse(
                f"{text} beside other aggregates", "Spark does not mix them with those in Python", "make two views"
            )


def _sum_in(ring: NamedRing) -> Callable[..., Any]:
    def in_ring(*columns: pa.Array) -> Any:
        there = np.logical_and.reduce([np.asarray(pc.is_valid(c).to_numpy(zero_copy_only=False)) for c in columns])
        at = np.flatnonzero(there)
        product = None
        for column in columns:
            values = column.take(pa.array(at)).to_numpy(zero_copy_only=False)
            values = values.astype(np.float64 if pa.types.is_floating(column.type) else np.int64)
            if (wrong := ring.not_taken(values)).any():
                raise StepFailedError(
                    f"{values[wrong][0]} in an argument of {ring.name}, which the ring does not take",
                    way_out="leave such rows out with WHERE, or correct them",
                )
            lifted = ring.lift(values)
            product = lifted if product is None else ring.multiply(product, lifted)
        assert product is not None
        total = ring.sum_by(product, np.zeros(len(at), np.int64), 1)
        return ring.show(total, np.array([not len(at)]), SqlType.parse(sql_type_of(ring.ring)).arrow)[0]

    # Spark reads the kind of the function from its types, which `from __future__ import annotations` made text.
    in_ring.__annotations__ = {"columns": pa.Array, "return": pa.Scalar}
    return in_ring


def _nodes(tree: Jvm) -> Iterable[Jvm]:
    yield tree
    for child in items(tree.children()):
        yield from _nodes(child)
