"""How a plan is spread over buckets: in stages, each by the values of one variable.

Inputs of a stage that have its variable are partitioned by it. The others are *replicated*: their state is stored once
and read by every bucket, and their changes go to every bucket. A join distributes over the sum of the buckets' parts,
so each bucket computes its share alone, whatever the variable: one exchange per stage, and none in between. One stage
is enough for any plan; where much would have to be replicated, cutting the view tree in two and exchanging the changes
of the view in between is cheaper. The cost model counts rows that buckets have to handle.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations

from headrace.factorized.maintenance import MaintenancePlan, Stage, Statement, Trigger, passed_on
from headrace.factorized.order_search import Sizes
from headrace.plan.assumptions import CHANGED_SHARE

STAGE_ROWS = 100_000
"""How many rows are handled in the time of one more exchange."""
_WORTH_SPREADING = 0.75  # of the time that one bucket takes, if there is a core per bucket
_MOST_CUTS = 8  # with more views than this, only single cuts are tried


@dataclass(frozen=True)
class Spread:
    """One way to spread a plan: where it is cut, the variable of each part, and its cost in rows per step."""

    cuts: frozenset[int]
    partitions: Mapping[int, str | None]  # by the view that the part computes
    cost: float


def distributed(
    plan: MaintenancePlan,
    sizes: Sizes,
    buckets: int,
    wanted: str | None = None,
    fixed: Mapping[str, str | None] | None = None,
    among: Collection[str] | None = None,
) -> MaintenancePlan:
    """Choose the stages of a plan.

    Parameters
    ----------
    wanted : if given, there is one stage, partitioned by this variable.
    fixed : an earlier choice: the variable of each part, by the name of the view that the part computes.
    among : if given, there is one stage, partitioned by one of these variables.
    """
    parts = _Parts(plan, sizes, buckets)
    if fixed is not None:
        number = {view.name: i for i, view in enumerate(plan.views)}
        chosen = {number[name]: variable for name, variable in fixed.items()}
        return parts.build(Spread(frozenset(chosen) - {plan.root}, chosen, 0.0), "")
    if wanted is not None:
        return parts.build(Spread(frozenset(), {plan.root: wanted}, 0.0), "it was asked for")
    if among is not None:
        best = parts.partition(parts.inputs(plan.root, frozenset()), among)
        return parts.build(Spread(frozenset(), {plan.root: best}, 0.0), "")
    return parts.build(min(map(parts.spread, parts.cut_sets()), key=lambda spread: spread.cost), "")


class _Parts:
    """The parts into which a set of cuts divides the tree of views of a plan."""

    def __init__(self, plan: MaintenancePlan, sizes: Sizes, buckets: int) -> None:
        self.plan = plan
        self.sizes = sizes
        self.buckets = buckets
        statements = [statement for trigger in plan.triggers for statement in trigger.statements]
        self.parent = {statement.source: statement.target for statement in statements}
        self.is_tree = plan.is_tree
        self.inner = sorted({s.target for s in statements} - {plan.root}) if self.is_tree else []

    def cut_sets(self) -> list[frozenset[int]]:
        most = len(self.inner) if len(self.inner) <= _MOST_CUTS else 1
        sets = chain.from_iterable(combinations(self.inner, count) for count in range(most + 1))
        return [frozenset(chosen) for chosen in sets]

    def top(self, view: int, cuts: frozenset[int]) -> int:
        """Return the view that is computed by the part to which this view belongs."""
        while view != self.plan.root and view not in cuts:
            view = self.parent[view]
        return view

    def inputs(self, root: int, cuts: frozenset[int]) -> list[int]:
        """The inputs of a part: relations, and views that other parts compute."""
        leaves = [trigger.leaf for trigger in self.plan.triggers]
        if not self.is_tree:
            return leaves
        candidates = [*leaves, *sorted(cuts)]
        return [v for v in candidates if v != root and self.top(self.parent[v], cuts) == root]

    def changed(self, view: int) -> float:
        """How many keys of a view a step is expected to change."""
        here = self.plan.views[view]
        if here.relation is not None:
            return CHANGED_SHARE * self.sizes.rows_of(here.relation)
        return CHANGED_SHARE * self.sizes.keys(here.keys, here.relations)

    def spread(self, cuts: frozenset[int]) -> Spread:
        partitions: dict[int, str | None] = {}
        cost = float(STAGE_ROWS * self.levels(cuts)[self.plan.root])
        for root in (*sorted(cuts), self.plan.root):
            inputs = self.inputs(root, cuts)
            partitions[root] = self.partition(inputs)
            cost += self.cost(inputs, partitions[root])
        return Spread(cuts, partitions, cost)

    def cost(self, inputs: Sequence[int], variable: str | None) -> float:
        copies = self.buckets if variable is not None else 1  # without a variable, one bucket does all of it
        return sum(self.changed(v) * (1 if self.has(v, variable) else copies) for v in inputs)

    def has(self, view: int, variable: str | None) -> bool:
        return variable is not None and variable in self.plan.views[view].keys

    def partition(self, inputs: Sequence[int], among: Collection[str] | None = None) -> str | None:
        """The variable that leaves the fewest rows to replicate; ties go to the one that most inputs have."""
        query = self.sizes.query  # a variable of one relation that is a key, as a category is, spreads nothing else
        shared = [key for key in query.variables if key not in query.local_variables]
        possible = shared if among is None else among
        keys = [key for key in possible if any(self.has(view, key) for view in inputs)]
        keys.sort(key=lambda key: -sum(self.has(view, key) for view in inputs))
        best = min(keys, key=lambda key: self.cost(inputs, key), default=None)
        # Those who list a result find each row in the bucket of such a variable, whatever that costs a step.
        is_spread = among is not None or best is None or not self.is_mostly_copied(inputs, best)
        return best if is_spread else None

    def is_mostly_copied(self, inputs: Sequence[int], variable: str) -> bool:
        """Whether spreading by a variable saves little time, because buckets repeat each other's work.

        In a path of twenty joins each variable is in two relations, and all buckets would handle the other eighteen.
        """
        everything = sum(map(self.changed, inputs))
        spread = sum(self.changed(v) for v in inputs if self.has(v, variable))
        return spread / self.buckets + (everything - spread) > _WORTH_SPREADING * everything

    def levels(self, cuts: frozenset[int]) -> dict[int, int]:
        """When each part runs: after all parts that it reads from."""
        out: dict[int, int] = {}

        def of(root: int) -> int:
            if root not in out:
                out[root] = max((1 + of(v) for v in self.inputs(root, cuts) if v in cuts), default=0)
            return out[root]

        for root in (*cuts, self.plan.root):
            of(root)
        return out

    def build(self, spread: Spread, why: str) -> MaintenancePlan:
        cuts, levels = spread.cuts, self.levels(spread.cuts)
        # Lower parts run first, ordered by level and by the number of their view; the part of the answer is the last.
        roots = sorted((*cuts, self.plan.root), key=lambda root: (levels[root], root == self.plan.root, root))
        stages, stage_of = [], {}
        for number, root in enumerate(roots):
            inputs = self.inputs(root, cuts)
            stage_of[root] = number
            variable = spread.partitions[root]
            reason = why or self.why(inputs, variable)
            stages.append(Stage(levels[root], variable, reason, self.triggers(root, cuts), root))
        views = []
        for i, view in enumerate(self.plan.views):
            root = self.top(self.parent[i], cuts) if self.is_tree and i in self.parent else self.plan.root
            views.append(
                replace(view, stage=stage_of[root], replicated=self.replicated(i, root, cuts, spread.partitions[root]))
            )
        return replace(self.plan, views=tuple(views), stages=tuple(stages))

    def why(self, inputs: Sequence[int], variable: str | None) -> str:
        views = {v: self.plan.views[v] for v in inputs}
        names = {v: view.name if view.indicator else view.relation or view.name for v, view in views.items()}
        having = sorted(names[v] for v in inputs if self.has(v, variable))
        if variable is None:
            if len(inputs) == 1:
                return "one relation and one total: any share of the rows will do"
            if not any(
                self.has(v, key) and self.has(w, key) for v, w in combinations(inputs, 2) for key in self.keys(v)
            ):
                return "the relations share no variable"
            return "no variable is in enough relations: buckets would all do nearly the same work, so one does it"
        if len(having) == len(inputs):
            return "every relation has it"
        return f"{', '.join(having)} {'has' if len(having) == 1 else 'have'} it; fewest rows are left to replicate"

    def keys(self, view: int) -> tuple[str, ...]:
        return self.plan.views[view].keys

    def replicated(self, view: int, root: int, cuts: frozenset[int], variable: str | None) -> bool:
        """Whether a view is the same in every bucket of the part that reads it."""
        if view == self.plan.root:
            return False
        inputs = self.inputs(root, cuts)
        if variable is None and len(inputs) == 1:
            return False
        return not any(self.has(v, variable) for v in inputs if self.is_below(v, view))

    def is_below(self, view: int, above: int) -> bool:
        """Whether a view is part of another one."""
        if not self.is_tree:
            return self.plan.views[view].relations <= self.plan.views[above].relations
        while view > above:  # a tree is numbered from the root down
            view = self.parent[view]
        return view == above

    def triggers(self, root: int, cuts: frozenset[int]) -> tuple[Trigger, ...]:
        """The triggers of a part: what changes of its inputs do, up to the view that it computes."""
        if not self.is_tree:
            return self.plan.triggers
        out: dict[str, Trigger] = {}
        for trigger in self.plan.triggers:
            start, name, own = trigger.leaf, trigger.relation, list[Statement]()
            for statement in trigger.statements:
                own.append(statement)
                if statement.target in cuts or statement is trigger.statements[-1]:
                    if self.top(statement.target, cuts) == root:
                        out.setdefault(name, Trigger(name, start, tuple(own)))
                    start, name, own = statement.target, passed_on(statement.target), []
            if not trigger.statements:
                out[name] = trigger
        return tuple(out.values())
