"""EXPLAIN: how a view is kept, why so, and what it costs, as text and as plain values."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.engine.reader import Reader
from headrace.engine.watermarks import is_final
from headrace.factorized.bucket import part_name
from headrace.factorized.explain import JoinExplanation, explain_join
from headrace.factorized.join_view import JoinView
from headrace.factorized.planner import stop_proposal
from headrace.foreign.explain import ForeignExplanation, explain_foreign
from headrace.foreign.view import ForeignView
from headrace.operators.explain import OperatorsExplanation, explain_operators
from headrace.operators.group import GroupLayout
from headrace.operators.kernel import ViewKernel
from headrace.operators.layout import GROUPS, ViewLayout
from headrace.operators.naming import Naming
from headrace.operators.tree_view import TreeView
from headrace.plan.view import Shape
from headrace.relation.arrangement import counts
from headrace.rings import Integer
from headrace.runtime.program import why_catalyst

if TYPE_CHECKING:
    from headrace.engine.access import Access
    from headrace.engine.definition import PlannedView
    from headrace.engine.handles import View

_WHY = {
    Shape.GROUPS: "aggregates of one table are sums over a ring, so a change to the table is a change to its groups",
    Shape.TOTAL: "aggregates without GROUP BY are one group, the sum of all rows",
    Shape.ROWS: "a filter and a projection of one table is a bag of rows with counts",
}


@dataclass(frozen=True)
class ArrangementExplained:
    """One arrangement of a view: what it maps to what, and its size."""

    name: str
    keys: str
    payload: str
    runs: int
    entries: int
    bytes: int


@dataclass(frozen=True)
class Explanation:
    """How a view is kept. `str()` is for people, `to_dict()` for programs."""

    view: str
    sql: str
    strategy: str
    why: str
    table: str
    condition: str | None
    keys: list[str]
    aggregates: list[str]
    having: str | None
    evaluated_by: str
    evaluated_why: str
    buckets: int
    exchange: str
    arrangements: list[ArrangementExplained]
    state_bytes: int
    estimated: str
    last_step: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The explanation as plain values for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"view {self.view}: {self.strategy}, because {self.why}",
            f"  table      {self.table}",
            f"  where      {self.condition or '(all rows)'}",
            f"  keys       {', '.join(self.keys) or '(none: one group)'}",
            f"  aggregates {', '.join(self.aggregates) or '(none)'}",
        ]
        if self.having:
            lines.append(f"  having     {self.having} (when read)")
        lines += [
            f"  evaluated  by {self.evaluated_by}: {self.evaluated_why}",
            f"  exchange   {self.exchange}",
            f"  state      {self.state_bytes:,} bytes in {self.buckets} buckets",
        ]
        for a in self.arrangements:
            lines.append(
                f"    {a.name}: {a.keys} -> {a.payload}; {a.entries:,} entries in {a.runs} runs, {a.bytes:,} bytes"
            )
        lines.append(f"  a step     {self.estimated}")
        if self.last_step:
            lines.append(f"  last step  {self.last_step['text']}")
            place = "in the driver" if self.last_step["ran"] == "driver" else "as a Spark job"
            lines.append(f"             ran {place}: {self.last_step['why']}")
        return "\n".join(lines)


def explain(access: Access, view: View) -> Explanation:
    """Explain a view as of the last step."""
    layout, reader = view.planned.layout, access.state.latest
    assert layout is not None
    plan = layout.plan
    evaluated_by, evaluated_why = _evaluated(view.planned.kernel)
    state = reader.sizes(view.name, view.planned.kernel.arrangements)
    arrangements = [
        ArrangementExplained(
            part,
            _keys(layout, part),
            _payload(layout) if part == GROUPS else "count",
            sum(runs for runs, _, _ in sizes),
            sum(entries for _, entries, _ in sizes),
            sum(size for _, _, size in sizes),
        )
        for part, sizes in state.items()
    ]
    most_runs = max((runs for sizes in state.values() for runs, _, _ in sizes), default=0)
    return Explanation(
        view=view.name,
        sql=view.sql,
        strategy="incremental aggregate over one table"
        if plan.shape is not Shape.ROWS
        else "incremental filter and projection",
        why=_WHY[plan.shape] + _closing(access, view.name, view.planned),
        table=plan.table,
        condition=None if plan.condition is None else str(plan.condition),
        keys=[str(key) for key in plan.keys],
        aggregates=[aggregate.sql for aggregate in plan.aggregates],
        having=None if plan.having is None else _readable_having(layout),
        evaluated_by=evaluated_by,
        evaluated_why=evaluated_why,
        buckets=reader.buckets,
        exchange="none for batches that the driver has and native expressions; else one, of groups summed before it",
        arrangements=arrangements,
        state_bytes=sum(a.bytes for a in arrangements),
        estimated=(
            f"costs O(changed rows + touched groups x runs); at most {most_runs} runs a bucket now, "
            "merged as those of a size come together"
        ),
        last_step=reader.summary,
    )


def explain_kept(access: Access, name: str, view: PlannedView) -> JoinExplanation:
    """Explain a view over a join, or moments, as of the last step."""
    kernel, reader = view.kernel, access.state.latest
    assert isinstance(kernel, JoinView)
    assert view.planned is not None
    chosen = view.definition.chosen
    plan = view.planned.plan
    reasons = zip(plan.stages, chosen["stages_why"], strict=True)
    stages = tuple(replace(stage, why=why) for stage, why in reasons)
    planned = replace(view.planned, order_why=chosen["order_why"], plan=replace(plan, stages=stages))
    sizes = reader.sizes(name, kernel.arrangements)
    groups = {i: reader.live(name, part_name(i, 0)) for i in range(len(plan.views))}
    rows = {source.name: reader.rows(source.table) for source in kernel.join.sources}
    return explain_join(
        name,
        view.definition.sql,
        view.definition.kind,
        planned,
        kernel.algebra,
        sizes,
        reader.buckets,
        _evaluated(kernel),
        reader.summary,
        stop_proposal(plan, groups, rows) if view.definition.kind != "view" else "",
    )


def explain_live(access: Access, name: str, view: PlannedView) -> ForeignExplanation:
    """Explain a view over a foreign-key join as of the last step."""
    return access.state.read(lambda reader: _explained_live(access, name, view, reader))


def _explained_live(access: Access, name: str, view: PlannedView, reader: Reader) -> ForeignExplanation:
    kernel, layout = view.kernel, view.layout
    assert isinstance(kernel, ForeignView)
    assert layout is not None
    alive = {part: reader.live(name, part) for part in kernel.arrangements}
    # Rows of the root may be equal, or be so without the columns that the view does not need; others have keys.
    counted = [GROUPS, *(join.waiting for join in kernel.chain.of(kernel.chain.graph.root))]
    return explain_foreign(
        name,
        view.definition.sql,
        view.definition.chosen["why"],
        kernel,
        {table: access.catalogue.schemas[table].key for table in kernel.rows.tables},
        alive | {part: _rows_in(name, part, reader) for part in counted},
        alive[GROUPS],
        reader.sizes(name, kernel.arrangements),
        {part: (_keys(layout, part), _payload(layout) if part == GROUPS else "count") for part in layout.arrangements},
        _evaluated(kernel),
        reader.summary,
        None if layout.plan.having is None else _readable_having(layout),
    )


def explain_tree(access: Access, name: str, view: PlannedView) -> OperatorsExplanation:
    """Explain a view kept by operators as of the last step."""
    kernel, reader = view.kernel, access.state.latest
    assert isinstance(kernel, TreeView)
    naming = Naming(kernel.tree)
    words = {}
    for layout in kernel.layouts:
        if isinstance(layout, GroupLayout):
            named = naming.groups(layout)
            for part in named.arrangements:
                words[layout.part(part)] = (_keys(named, part), _payload(named) if part == GROUPS else "count")
    return explain_operators(
        name,
        view.definition.sql,
        view.definition.chosen["why"] + _closing(access, name, view),
        kernel,
        {table: reader.rows(table) for table in kernel.tree.tables},
        reader.sizes(name, kernel.arrangements),
        words,
        reader.summary,
    )


def _closing(access: Access, name: str, view: PlannedView) -> str:
    """Say of a view whose windows close that they do."""
    if not is_final(view):
        return ""
    closed = access.state.latest.final(name)
    return f"; windows that are over by the watermark leave the state, and {closed:,} groups have"


def _rows_in(view: str, part: str, reader: Reader) -> int:
    """How many rows the entries of an arrangement stand for: the sum of all counts, over runs as they are."""
    total = 0
    for run in reader.runs(view, part):
        run.check(np.arange(run.rows))
        total += int(counts(run.payload).sum())
    return total


def _evaluated(kernel: ViewKernel) -> tuple[str, str]:
    reason = next(filter(None, map(why_catalyst, kernel.sides)), None)
    if reason is None:
        return "the kernels on columns", "every expression is one whose result is known to equal Spark's"
    return "Catalyst", f"it has {reason}"


def _payload(layout: ViewLayout) -> str:
    """Say what a group's payload holds, in words."""
    words = []
    for part in layout.components:
        named = () if part.argument is None else (part.argument, *part.others)
        argument = f" of {', '.join(str(layout.plan.arguments[i]) for i in named)}" if named else ""
        if part.role == "rows":
            words.append("row count")
        elif part.role == "present":
            words.append(f"count{argument}")
        elif part.role == "distinct":
            words.append(f"count of the different {'combinations' if part.others else 'values'}{argument}")
        elif part.role == "distinct_sum":
            words.append(f"sum of the different values{argument}")
        elif part.role == "squares":
            words.append(f"sum of the squares{argument} with its rounding error")
        elif isinstance(part.ring, Integer):
            words.append(f"exact {64 * part.ring.limbs}-bit sum{argument}")
        else:
            words.append(f"sum{argument} with its rounding error")
    return f"({', '.join(words)})"


def _keys(layout: ViewLayout, part: str) -> str:
    names = [str(key) for key in layout.plan.keys]
    arguments = [str(layout.plan.arguments[i]) for i in layout.values.get(part, ())]
    names += [f"{arguments[0]} (ordered)"] if len(arguments) == 1 else arguments
    return f"({', '.join(names)})"


def _readable_having(layout: ViewLayout) -> str:
    text = str(layout.plan.having)
    for i, aggregate in enumerate(layout.plan.aggregates):
        text = text.replace(f"a{i}", aggregate.sql)
    for i, key in enumerate(layout.plan.keys):
        text = text.replace(f"k{i}", str(key))
    return text
