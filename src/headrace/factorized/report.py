"""The report on a view over a join, kept as views over rings.

Plans over wide tables have hundreds of variables, most of them columns of one relation that nothing is joined on. So
the report shows what matters to a reader (where relations meet, what is kept, what a change costs) and counts the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from headrace.explain.graph import Edge, Graph
from headrace.explain.graph import Node as Drawn
from headrace.explain.parts import Fact, Outline, Part, Section, Table
from headrace.explain.report import THEORY, Report, Subject, last_step
from headrace.explain.words import counted, cut, listed, one_line
from headrace.factorized.algebra import Algebra
from headrace.factorized.described import (
    BY_KEY,
    CONSTANT,
    MATCHES,
    SMALLER,
    DescribedView,
    Words,
    arrangements,
    change_of,
    described_views,
    shortened,
    written_order,
)
from headrace.factorized.maintenance import MaintenancePlan, Stage
from headrace.factorized.order import Node
from headrace.factorized.order_text import parse
from headrace.factorized.planner import Planned
from headrace.plan.classes import classes

_HOW = {
    "factorized": "a join kept as one tree of views (factorized)",
    "recursive": "a join kept by views for each of its relations (recursive)",
    "first-order": "a join kept by its relations as they are (first-order)",
}
_WHY = {
    "factorized": "one tree of views serves changes of all its relations",
    "recursive": "it was asked for: what a change of a relation is joined with is a view, maintained the same way",
    "first-order": "it was asked for: a change is joined with the other relations as they are",
}
_LOCALS = 3  # how many local variables of a relation are named
_KEYS, _READERS = 30, 36  # keys and relations are named up to this many characters, else counted
_LONG = 480  # characters of a payload
_LINE = 110  # characters of a formula, before views in it lose their keys


def report(planned: Planned, algebra: Algebra, subject: Subject, *, proposal: str = "") -> Report:
    """Report on a view over a join.

    Parameters
    ----------
    subject : sizes and names; arrangements in it that belong to no view of the plan are the answer's.
    proposal : advice on how to make the state smaller.
    """
    plan, query = planned.plan, planned.query
    words = Words(plan)
    join = _Join(planned, subject.kind, words, tuple(described_views(plan, algebra, words, subject)))
    order = "" if planned.order is None else written_order(shortened(planned.order, query))
    exchanges = _exchanges(plan)
    kept = sum(view.kept for view in join.views)
    entries, size = (sum(getattr(part, what) for part in subject.sizes.values()) for what in ("entries", "bytes"))
    return Report.of(
        subject if subject.why else replace(subject, why=_WHY.get(plan.strategy, "it was asked for")),
        how=_HOW.get(plan.strategy, plan.strategy),
        kept=(
            f"{counted(entries, 'entry', 'entries')}, {size:,} bytes in {counted(subject.buckets, 'bucket')}: sums in "
            f"{kept} of {counted(len(join.views), 'view')}; the join itself is never made"
        ),
        step=join.step(),
        arrangements=list(arrangements(plan, words, join.views, subject)),
        sections=[
            Section("plan", (*join.shape(), Fact("evaluated", "by {}: {}".format(*subject.evaluated)), join.table())),
            Section("stages", tuple(join.stages(exchanges, proposal))),
            last_step(subject.last_step, *_multiplied_out(subject)),
            Section(THEORY, tuple(join.theory(order))),
        ],
        graph=join.graph(),
        values={
            "relations": join.relations,
            "keys": plan.views[plan.root].keys,
            "classes": classes(query),
            "classes_under_dependencies": classes(planned.reduct),
            "order": order,  # without local variables at the bottom, which need not be written
            "order_why": planned.order_why,
            "proposal": proposal,
            "partition": plan.partition,  # of the last stage
            "partition_why": plan.stages[-1].why,
            "stages": [_stage(plan, stage) for stage in plan.stages],
            "replicated": plan.replicated_relations,
            "static": join.static,
            "views": join.views,  # the answer first
            "triggers": join.triggers,
            "exchanges": exchanges,
            "evaluated_by": subject.evaluated[0],
            "evaluated_why": subject.evaluated[1],
        },
    )


@dataclass(frozen=True)
class _Join:
    """The described views of a plan."""

    planned: Planned
    kind: str
    words: Words
    views: tuple[DescribedView, ...]

    @property
    def plan(self) -> MaintenancePlan:
        return self.planned.plan

    @property
    def relations(self) -> dict[str, tuple[str, ...]]:
        return {relation.name: relation.variables for relation in self.planned.query.relations}

    @property
    def static(self) -> tuple[str, ...]:
        return tuple(relation.name for relation in self.planned.query.relations if relation.name in self.plan.static)

    @property
    def triggers(self) -> list[dict[str, Any]]:
        return [self.words.trigger(trigger) for trigger in self.plan.triggers]

    @property
    def _changing(self) -> list[dict[str, Any]]:
        return [trigger for trigger in self.triggers if not trigger["static"]]

    # -- in plain words -----------------------------------------------------------------------------------------------

    def step(self) -> str:
        """What a step costs."""
        costs = (CONSTANT, SMALLER, MATCHES)
        by_cost = {cost: [t["relation"] for t in self._changing if t["cost"] == cost] for cost in costs}
        said = []
        if by_cost[CONSTANT]:
            said.append(f"a changed key of {', '.join(by_cost[CONSTANT])} takes a constant number of lookups")
        if by_cost[SMALLER]:
            said.append(
                f"a changed key of {', '.join(by_cost[SMALLER])} takes as many lookups as keys match it in the view "
                "that has the fewest of them"
            )
        if by_cost[MATCHES]:
            said.append(f"a changed key of {', '.join(by_cost[MATCHES])} takes as many lookups as keys match it")
        return "; ".join(said) or "no relation changes, so there is nothing to do"

    def shape(self) -> Iterator[Fact]:
        count = Counter(variable for variables in self.relations.values() for variable in variables)
        shared = sum(times > 1 for times in count.values())
        relations = counted(len(self.relations), "relation")
        yield Fact("join", f"of {relations} over {counted(len(count), 'variable')}, {shared} of them shared")
        yield Fact("keys", ", ".join(self.views[0].keys) or "(none: one group)")
        payload = cut(self.views[0].payload, _LONG)
        yield Fact("payload", f"of the answer: {payload}; of other views: what their relations have of it")

    def table(self) -> Table:
        """The table of views, each followed by the views that it joins."""
        unit = "sums" if self.kind == "view" else "features"
        return Table(
            ("view", "", unit, "entries", "bytes", "joined with changes of"),
            tuple(
                (
                    f"{'  ' * min(depth, 12)}{one_line(view.name)}",
                    _state(view),
                    view.degree,
                    view.entries if view.kept else None,
                    view.bytes if view.kept else None,
                    self._readers(view),
                )
                for view, depth in self._tree()
            ),
        )

    def _tree(self) -> Iterator[tuple[DescribedView, int]]:
        """The views with their depth: children under their parent, or one list where views are shared."""
        if self.plan.strategy != "factorized":
            yield from ((view, 0) for view in sorted(self.views, key=lambda view: view.relation is not None))
            return
        by_name = {view.name: view for view in self.views}
        stack = [(self.views[0], 0)]
        while stack:
            view, depth = stack.pop()
            yield view, depth
            stack += [(by_name[child], depth + 1) for child in reversed(view.children)]

    def _readers(self, view: DescribedView) -> str:
        if view is self.views[0]:
            return "(the answer)"
        if not view.read_by:
            return "(readers)" if view.why.startswith("readers") else "(no relation)"
        others = [name for name in self.relations if name not in self.static and name not in view.changes]
        if len(others) > 2 and sorted(view.read_by) == sorted(others):
            return "all other relations"
        named = ", ".join(map(one_line, view.read_by))
        return named if len(named) <= _READERS else f"{len(view.read_by)} relations"

    def stages(self, exchanges: str, proposal: str) -> Iterator[Fact]:
        plan = self.plan
        if len(plan.stages) == 1:
            by = f"by {plan.partition}" if plan.partition else "none"
            yield Fact("partition", f"{by}: {plan.stages[-1].why}")
        for i, stage in enumerate(plan.stages if len(plan.stages) > 1 else ()):
            made = _stage(plan, stage)
            by = f"partitioned by {stage.partition}"
            said = f"{i + 1}. {made['computes']} from {', '.join(made['from'])}, {by}: {stage.why}"
            yield Fact("" if i else "stages", said)
        if plan.replicated_relations:
            yield Fact("replicated", f"{', '.join(plan.replicated_relations)}: stored once, and read by every bucket")
        if proposal:
            yield Fact("proposal", proposal)
        if self.static:
            yield Fact("static", f"{', '.join(self.static)}: filled once, and what only filling needs is not kept")
        yield Fact("exchange", exchanges)

    # -- theory -------------------------------------------------------------------------------------------------------

    def theory(self, order: str) -> Iterator[Part]:
        under = classes(self.planned.reduct)
        more = "" if under == classes(self.planned.query) else f"; under the dependencies of its tables {listed(under)}"
        yield Fact("query", f"is {listed(classes(self.planned.query)) or 'cyclic'}{more}")
        if order:
            yield Fact("order", f"of variables: {self.planned.order_why}")
            yield Outline(tuple(line for root in parse(order).roots for line in self._order(root)))
        yield from self._indicators()
        if self._changing:
            yield Fact("changes", "d is the change of a view, * the join of two of them, and += adds over the ring")
            yield Outline(tuple(self._formulas()))

    def _indicators(self) -> Iterator[Fact]:
        """The indicator projections, each with the view that it keeps small and the cycle that it closes."""
        names, plan = self.words.names, self.plan
        for above in self.words.children:
            for child in self.words.children[above]:
                if plan.views[child].indicator:
                    cycle = ", ".join(sorted(plan.views[above].relations))
                    yield Fact(
                        "indicator",
                        f"{names[child]} below {names[above]}: it closes a cycle with {cycle}, so that the view has no "
                        f"more keys than {plan.views[child].relation}; it changes no answer (F-IVM, Figure 17)",
                    )

    def _order(self, root: Node) -> Iterator[tuple[int, str]]:
        written = {node.variable for node in root.subtree()}
        stack = [(root, 0)]
        while stack:
            node, depth = stack.pop()
            stack += [(child, depth + 1) for child in reversed(node.children)]
            stop = " (not summed here)" if node.stop_pushdown else ""
            names = [_relation(name, [v for v in self.relations[name] if v not in written]) for name in node.relations]
            yield depth, f"{one_line(node.variable)}{stop}{': ' if names else ''}{', '.join(names)}"

    def _formulas(self) -> Iterator[tuple[int, str]]:
        """What a change of each relation adds to which view."""
        changing, short = self._changing, self._short_names()
        for trigger in changing:
            yield 0, f"{one_line(trigger['relation'])}: {trigger['cost']}"
            own, same = _own_statements(trigger, changing)
            for statement in own:
                found = statement["found"]
                product = " * ".join([change_of(short[statement["changed"]]), *(short[name] for name in found)])
                yield 1, f"{change_of(short[statement['target']])} += {product}"
                for how in dict.fromkeys(found.values()):
                    if how != BY_KEY:
                        yield 2, f"{', '.join(short[name] for name in found if found[name] == how)}: found {how}"
            if same:
                yield 1, f"then as for {one_line(same)}"

    def _short_names(self) -> dict[str, str]:
        """Names of views in formulas; without keys (which the table of views shows) where lines would be too long."""
        short = {v.name: one_line(v.name).removesuffix(f"[{one_line(', '.join(v.keys))}]") for v in self.views}
        longest = max((len(s["text"]) for trigger in self._changing for s in trigger["statements"]), default=0)
        if longest <= _LINE or len(set(short.values())) < len(short):
            return {name: one_line(name) for name in short}
        return short

    # -- the graph ----------------------------------------------------------------------------------------------------

    def graph(self) -> Graph:
        """The views, each above the views that it joins, with the relations at the bottom."""
        parents: dict[str, list[str]] = {view.name: [] for view in self.views}
        for view in self.views:
            for child in view.children:
                parents[child].append(view.name)

        @cache
        def layer(name: str) -> int:
            return 1 + max(map(layer, parents[name]), default=-1)

        leaves = [view for view in self.views if view.relation is not None]
        # A relation with indicator projections has several leaves, and is drawn below the lowest of them.
        lowest = {view.relation: view for view in sorted(leaves, key=lambda view: layer(view.name))}
        return Graph(
            (
                *(self._node(view, layer(view.name)) for view in self.views),
                *(self._leaf(view, layer(view.name) + 1) for view in leaves if lowest[view.relation] is view),
            ),
            (
                *(Edge(view.name, child) for view in self.views for child in view.children),
                *(Edge(view.name, f"relation {view.relation}") for view in leaves),
            ),
        )

    def _node(self, view: DescribedView, layer: int) -> Drawn:
        kind = "not kept" if not view.kept else "replicated" if view.replicated else "kept"
        answer = "answer, " if view is self.views[0] else ""
        unit = "sum" if self.kind == "view" else "feature"
        held = f"{answer}{counted(view.entries, 'entry', 'entries')}" if view.kept else "not kept"
        return Drawn(
            view.name,
            kind,
            layer,
            (view.name.removesuffix(f"[{', '.join(view.keys)}]") or view.name, _keys(view.keys)),
            (counted(view.degree, unit), held),
            f"{view.name}: {view.payload}; {'kept' if view.kept else 'not kept'}: {view.why}; {view.where}",
        )

    def _leaf(self, view: DescribedView, layer: int) -> Drawn:
        relation = str(view.relation)
        kind = "static" if relation in self.static else "table"
        return Drawn(f"relation {relation}", kind, layer, (relation,), (), f"relation {relation}")


def _multiplied_out(subject: Subject) -> Iterator[Fact]:
    """Where the last step made entries of products, which cost more than their parts."""
    made: Mapping[str, int] = subject.last_step.get("multiplied_out", {}).get(subject.name, {})
    for i, (what, entries) in enumerate(made.items()):
        yield Fact("" if i else "products", f"multiplied out: {what}, {counted(entries, 'entry', 'entries')}")


def _stage(plan: MaintenancePlan, stage: Stage) -> dict[str, Any]:
    inputs = [plan.views[trigger.leaf] for trigger in stage.triggers]
    return {
        "computes": plan.views[stage.root].name,
        "from": [view.relation or view.name for view in inputs],
        "partition": stage.partition,
        "replicated": [view.relation or view.name for view in inputs if view.replicated],
        "why": stage.why,
    }


def _state(view: DescribedView) -> str:
    return "not kept" if not view.kept else "kept once" if view.replicated else "kept"


def _exchanges(plan: MaintenancePlan) -> str:
    variables = " and ".join(dict.fromkeys(str(stage.partition) for stage in plan.stages if stage.partition))
    by = f"by {variables}" if variables else "by bucket"
    to_all = f" (those of {', '.join(plan.replicated_relations)} to every bucket)" if plan.replicated_relations else ""
    more = plan.levels - 1
    between = f"; {more} more, of changes of views between stages" if more else ""
    return (
        f"none for batches that the driver has and native expressions; else one, of leaf changes {by}{to_all}, summed "
        f"before it{between}; then each bucket's share of the answer's change is added up, one row a group and bucket"
    )


def _relation(name: str, local: Sequence[str]) -> str:
    shown = list(map(one_line, local if len(local) <= _LOCALS + 1 else [*local[:_LOCALS], f"+{len(local) - _LOCALS}"]))
    return f"{one_line(name)}({', '.join(shown)})" if shown else one_line(name)


def _keys(keys: Sequence[str]) -> str:
    """The keys that fit, and how many more there are."""
    fit = next((n for n in range(len(keys), 1, -1) if len(", ".join(keys[:n])) <= _KEYS), min(1, len(keys)))
    more = [f"+{len(keys) - fit}"] if fit < len(keys) else []
    return f"[{', '.join([*keys[:fit], *more])}]"


def _own_statements(trigger: Mapping[str, Any], triggers: Sequence[Mapping[str, Any]]) -> tuple[list[Any], str]:
    """The statements of a trigger before the rest that it shares with an earlier one, and the relation of that one.

    Paths meet on their way up a tree, so without this the text of a deep tree would repeat most statements many times.
    """
    mine = trigger["statements"]
    for own in range(len(mine) - 1):  # a rest of one statement is as short as a reference to it
        for earlier in triggers[: triggers.index(trigger)]:
            if earlier["statements"][own - len(mine) :] == mine[own:]:
                return mine[:own], earlier["relation"]
    return mine, ""
