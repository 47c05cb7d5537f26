"""The report on a view over one table: groups, a total, or rows that meet a condition."""

from __future__ import annotations

from dataclasses import replace

from headrace.explain.graph import Edge, Graph, Node
from headrace.explain.parts import Fact, Section
from headrace.explain.report import THEORY, Arrangement, Report, Subject, last_step, state
from headrace.explain.words import counted
from headrace.operators.layout import GROUPS, ViewLayout
from headrace.operators.naming import having_words, key_words, payload_words
from headrace.plan.view import Shape

_HELD = {Shape.GROUPS: "group", Shape.TOTAL: "total", Shape.ROWS: "different row"}
_THEORY = {
    Shape.GROUPS: "aggregates of one table are sums over a ring, so a change to the table is a change to its groups",
    Shape.TOTAL: "aggregates without GROUP BY are one group, the sum of all rows",
    Shape.ROWS: "a filter and a projection of one table is a bag of rows with counts",
}


def report(layout: ViewLayout, subject: Subject) -> Report:
    """Report on a view over one table."""
    plan, (by, why) = layout.plan, subject.evaluated
    kept = [
        Arrangement.of(
            "",
            part,
            key_words(layout, part),
            payload_words(layout) if part == GROUPS else "count",
            "the answer is read from it" if part == GROUPS else "a value that leaves may be the last of its kind",
            subject.size(part),
        )
        for part in layout.arrangements
    ]
    condition = None if plan.condition is None else str(plan.condition)
    keys, aggregates = [str(key) for key in plan.keys], [aggregate.sql for aggregate in plan.aggregates]
    having = None if plan.having is None else having_words(layout)
    held = counted(subject.size(GROUPS).live, _HELD[plan.shape])
    size = sum(arrangement.bytes for arrangement in kept)
    runs = max((subject.size(part).most_runs for part in layout.arrangements), default=0)
    facts = {
        "table": plan.table,
        "where": condition or "(all rows)",
        "keys": ", ".join(keys) or "(none: one group)",
        "aggregates": ", ".join(aggregates) or "(none)",
        "having": f"{having} (when read)" if having else "",
        "evaluated": f"by {by}: {why}",
        "exchange": "none for batches that the driver has and native expressions; else one, of groups summed before it",
    }
    table, answer = f"table {plan.table}", "groups" if plan.shape is not Shape.ROWS else "rows"
    return Report.of(
        replace(subject, why=subject.why or "one table: what changes in it says all that changes in the answer"),
        how=f"{answer} of one table, kept as they change",
        kept=f"{held}, {size:,} bytes in {counted(subject.buckets, 'bucket')}; the rows of the table are not needed",
        step="costs in proportion to the rows that change and the groups that they touch",
        arrangements=kept,
        sections=[
            Section("plan", tuple(Fact(label, text) for label, text in facts.items() if text)),
            Section("state", (state(kept),)),
            last_step(subject.last_step),
            Section(
                THEORY,
                (
                    Fact("sums", _THEORY[plan.shape]),
                    Fact(
                        "cost",
                        f"O(changed rows + touched groups x runs); at most {runs} runs a bucket now, merged as those "
                        "of a size come together",
                    ),
                ),
            ),
        ],
        graph=Graph(
            (
                Node(answer, "kept", 0, (answer, ", ".join((*aggregates, *keys))), (held, f"{size:,} bytes kept")),
                Node(
                    table,
                    "table",
                    1,
                    (plan.table, counted(subject.rows.get(plan.table, 0), "row")),
                    (f"where {condition}",) if condition else (),
                ),
            ),
            (Edge(answer, table),),
        ),
        values={
            "table": plan.table,
            "condition": condition,
            "keys": keys,
            "aggregates": aggregates,
            "having": having,
            "evaluated_by": by,
            "evaluated_why": why,
            "exchange": facts["exchange"],
        },
    )
