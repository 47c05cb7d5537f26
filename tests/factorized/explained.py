"""Explanations of small and of well-known joins, made without Spark: what tests of the text and the drawing share."""

from typing import Any

from tests.factorized.harness import BIGINT, natural_join

from headrace.datasets.dataset import Dataset
from headrace.explain.report import Report, Size, Subject
from headrace.factorized.planner import Options, moments_view, sums_view
from headrace.factorized.report import report
from headrace.operators.layout import ViewLayout
from headrace.plan.expression import Expression, column
from headrace.plan.join import Argument, JoinPlan, Source, Term
from headrace.plan.view import Aggregate, Shape, ViewPlan

SMALL = {"R": ("A", "B"), "S": ("A", "C", "E"), "T": ("C", "D")}
LAST_STEP = {"text": "step 3: 2 rows of R in 1.5 ms (driver)", "ran": "driver", "why": "2 changed rows"}
EVALUATED = ("the kernels on columns", "every expression is one whose result is known to equal Spark's")


def explained(
    schemas: dict[str, tuple[str, ...]],
    features: list[str],
    groups: tuple[str, ...] = (),
    name: str = "moments",
    last_step: dict[str, Any] | None = None,
    **options: Any,
) -> Report:
    """Explain the moments of a natural join, with made-up sizes that differ from view to view."""
    view, planned = moments_view(natural_join(schemas), groups, features, Options(**options), 4, 0, {})
    sizes = {part: Size(4, 40 + 4 * i, 4000 + 400 * i) for i, part in enumerate(view.arrangements)}
    subject = Subject(
        name, "SELECT ...", planned.plan.strategy, "", 4, "covariance", "", EVALUATED, sizes, last_step=last_step or {}
    )
    return report(planned, view.algebra, subject)


def of_dataset(data: Dataset, **options: Any) -> Report:
    """Explain the moments that a model over a data set needs."""
    schemas = {table.name: tuple(table.schema.names) for table in data.tables}
    return explained(schemas, [f for table in data.tables for f in table.features], name=data.name, **options)


def sql_explained() -> Report:
    """Explain SELECT A, COUNT(*), SUM(B * D) of the small join by A."""
    columns = {name: column(name, BIGINT, False) for name in "ABCDE"}
    sources = (
        Source("R", "R", None, (("A", columns["A"]),), (columns["B"],)),
        Source("S", "S", None, (("A", columns["A"]), ("C", columns["C"]))),
        Source("T", "T", None, (("C", columns["C"]),), (columns["D"],)),
    )
    join = JoinPlan(sources, ("A",), (Argument((Term(1, ((0, 0), (2, 0))),), ()),))
    product = Expression("Multiply", BIGINT, "(B * D)", (columns["B"], columns["D"]))
    aggregates = (Aggregate("count", None, BIGINT, "count(1)"), Aggregate("sum", 0, BIGINT, "sum((B * D))"))
    plan = ViewPlan(join, Shape.GROUPS, (columns["A"],), (product,), aggregates, None, ())
    view, planned = sums_view(ViewLayout(plan, 0), Options(), 4)
    sizes = {part: Size(4, 40, 4000) for part in view.arrangements}
    sql = "SELECT A, COUNT(*), SUM(B * D) FROM R NATURAL JOIN S NATURAL JOIN T GROUP BY A"
    return report(planned, view.algebra, Subject("by_a", sql, "factorized", "", 4, evaluated=EVALUATED, sizes=sizes))
