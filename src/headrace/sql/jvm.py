"""The few gestures of py4j that the SQL front end needs, in one place.

Catalyst's classes are not a stable interface, and reaching them from Python takes some ceremony: Scala sequences,
options, companion objects. Keeping the ceremony here lets the rest of the package read like the plan it walks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from py4j.java_gateway import JavaPackage
from pyspark.sql import SparkSession

Jvm = Any  # an object of the JVM behind py4j; its class is known only there


def kind(node: Jvm) -> str:
    """Name of the Catalyst class of a plan node or an expression."""
    return str(node.getClass().getSimpleName())


def items(seq: Jvm) -> list[Jvm]:
    """The elements of a Scala sequence."""
    return [seq.apply(i) for i in range(seq.size())]


def option(value: Jvm) -> Jvm | None:
    """The content of a Scala option, or None."""
    return value.get() if value.isDefined() else None


def identity(attribute: Jvm) -> int:
    """The number that tells one attribute from all others, whatever its name."""
    return int(attribute.exprId().id())


def conjuncts(condition: Jvm | None) -> list[Jvm]:
    """The terms of an AND, from the first to the last."""
    if condition is None:
        return []
    if kind(condition) != "And":
        return [condition]
    return conjuncts(condition.left()) + conjuncts(condition.right())


class Package:
    """A package of the JVM that remembers what it found: py4j asks the JVM again for every dot of every name."""

    def __init__(self, package: Jvm) -> None:
        self._package = package

    def __getattr__(self, name: str) -> Jvm:
        found = getattr(self._package, name)
        found = Package(found) if isinstance(found, JavaPackage) else found
        setattr(self, name, found)
        return found


@dataclass(frozen=True)
class Catalyst:
    """Builders of Catalyst expressions in one Spark driver."""

    spark: SparkSession

    @cached_property
    def jvm(self) -> Jvm:
        return Package(self.spark._jvm)

    @cached_property
    def expressions(self) -> Jvm:
        return self.jvm.org.apache.spark.sql.catalyst.expressions

    def seq(self, elements: Iterable[Jvm]) -> Jvm:
        return self.jvm.org.apache.spark.api.python.PythonUtils.toSeq(list(elements))

    def type(self, spelling: str) -> Jvm:
        """A Catalyst type from its JSON name: `integer`, `long`, `decimal(12,2)`, ..."""
        return self.jvm.org.apache.spark.sql.types.DataType.fromJson(json.dumps(spelling))

    def literal(self, value: object, type: Jvm) -> Jvm:
        return self.expressions.Literal(value, type)

    def text(self, value: str) -> Jvm:
        """A string as a literal."""
        return self._companion("Literal").apply(value)

    def cast(self, value: Jvm, type: Jvm) -> Jvm:
        """A cast that loses nothing, so that it is the same in every mode and time zone."""
        return self._companion("Cast").apply(value, type, True)

    def conjunction(self, terms: list[Jvm]) -> Jvm | None:
        """The AND of all terms, evaluated from the first to the last; None when there are none."""
        result = None
        for term in terms:
            result = term if result is None else self.expressions.And(result, term)
        return result

    def when(self, condition: Jvm, value: Jvm) -> Jvm:
        """IF(condition, value, NULL): the value is never evaluated where the condition does not hold."""
        return self.expressions.If(condition, value, self.literal(None, value.dataType()))

    def normalised_float(self, value: Jvm) -> Jvm:
        """A float or double with one zero and one NaN, marked so that Spark does not normalise it again."""
        normalise = self.jvm.org.apache.spark.sql.catalyst.optimizer.NormalizeNaNAndZero
        return self.expressions.KnownFloatingPointNormalized(normalise(value))

    def attribute(self, name: str, type: Jvm, nullable: bool) -> Jvm:
        """A new attribute that stands for a column to come."""
        empty = self.jvm.org.apache.spark.sql.types.Metadata.empty()
        fresh = self.expressions.NamedExpression.newExprId()
        return self.expressions.AttributeReference(name, type, nullable, empty, fresh, self.seq([]))

    def alias(self, expression: Jvm, name: str) -> Jvm:
        fresh = self.expressions.NamedExpression.newExprId()
        nothing = self.jvm.scala.Option.empty()
        return self.expressions.Alias(expression, name, fresh, self.seq([]), nothing, self.seq([]))

    def renumbered(self, expression: Jvm, named: Jvm) -> Jvm:
        """An expression under the name, the number and the metadata of the named expression that it replaces."""
        metadata, nothing = self.jvm.scala.Option.apply(named.metadata()), self.seq([])
        return self.expressions.Alias(expression, named.name(), named.exprId(), named.qualifier(), metadata, nothing)

    def substitute(self, expression: Jvm, by_identity: Mapping[int, Jvm]) -> Jvm:
        """Replace attributes by expressions; what has no such attribute is returned as it is."""
        name = kind(expression)
        if name == "AttributeReference":
            return by_identity.get(identity(expression), expression)
        old = items(expression.children())
        new = [self.substitute(child, by_identity) for child in old]
        if name == "GetStructField" and kind(new[0]) == "CreateNamedStruct":  # a field of a struct that is built here
            return new[0].valExprs().apply(expression.ordinal())
        if name == "GetArrayItem" and kind(new[0]) == "CreateArray" and kind(new[1]) == "Literal":  # and of an array
            return new[0].children().apply(int(new[1].value()))
        return self.with_children(expression, old, new)

    def with_children(self, expression: Jvm, old: list[Jvm], new: list[Jvm]) -> Jvm:
        """The expression over new children; itself when they are the very same objects."""
        if all(before is after for before, after in zip(old, new, strict=True)):
            return expression
        return expression.withNewChildren(self.seq(new))

    def project(self, expressions: Iterable[Jvm], leaf: Jvm) -> Jvm:
        """A projection that holds expressions together, so that one call rewrites them all."""
        project = self.jvm.org.apache.spark.sql.catalyst.plans.logical.Project
        return project(self.seq(self.alias(expression, "x") for expression in expressions), leaf)

    def rewrite(self, project: Jvm, pairs: Iterable[tuple[Jvm, Jvm]]) -> list[Jvm]:
        """Replace attributes in the expressions of a projection, at a cost per attribute and not per node."""
        pair = self.jvm.scala.Tuple2
        mapping = self._companion("AttributeMap").apply(self.seq(pair(old, new) for old, new in pairs))
        return [alias.child() for alias in items(project.rewriteAttrs(mapping).projectList())]

    def local_relation(self, attributes: Iterable[Jvm]) -> Jvm:
        """A leaf with these attributes, and no rows."""
        relation = self.jvm.org.apache.spark.sql.catalyst.plans.logical.LocalRelation
        return relation(self.seq(attributes), self.seq([]), False, self.jvm.scala.Option.empty())

    def optimized(self, plan: Jvm) -> Jvm:
        """What the optimizer makes of an analysed plan."""
        with self.active():
            return self.spark._jsparkSession.sessionState().optimizer().execute(plan.clone())

    def generated(self, project: Jvm) -> Jvm:
        """The function from row to row that Spark generates from a projection."""
        with self.active():
            return self.expressions.UnsafeProjection.create(project.projectList(), project.child().output())

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make the session this thread's active one, where Spark looks for settings; before, it is the user's."""
        sessions = self.jvm.org.apache.spark.sql.classic.SparkSession
        before = sessions.getActiveSession()
        sessions.setActiveSession(self.spark._jsparkSession)
        try:
            yield
        finally:
            if before.isDefined():
                sessions.setActiveSession(before.get())
            else:
                sessions.clearActiveSession()

    def _companion(self, name: str) -> Jvm:
        """The companion object of a class of expressions, for what the class itself does not forward."""
        return getattr(getattr(self.expressions, f"{name}$"), "MODULE$")
