"""One bucket of a plan in one step: triggers run one after the other, and their changes are added up.

Changes of several relations in a step are handled one after the other: each sees the changes of those before it, so
together they give the change of the whole join, including products of changes. In a tree of views, changes that meet at
a view are added up before they go on, so a step passes every view once, however many relations it changes. Relations
that never change again come first, so views that are needed only for filling never have to be stored.

A change may have products beside its entries (`products`). They go up as products, and are multiplied out on the side
for those views that are kept, and for the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from headrace.factorized.algebra import Algebra
from headrace.factorized.delta import delta, in_order, transitions
from headrace.factorized.maintenance import MaintenancePlan, Stage, Statement, Trigger
from headrace.factorized.mixed_delta import MixedChange, mixed_delta
from headrace.factorized.moments import MomentsAlgebra
from headrace.factorized.product_delta import product_delta
from headrace.factorized.products import Change, Product, is_worth_it, multiplied_out
from headrace.operators.kernel import State
from headrace.relation.arrangement import counts, growth, lookup
from headrace.relation.run import Run, merge
from headrace.relation.runset import AnyRun, RunSet, as_set
from headrace.relation.variables import Variables
from headrace.rings import Group, take


def part_name(view: int, order: int) -> str:
    """Name the arrangement of a view in one of its orders."""
    return f"v{view}" if order == 0 else f"v{view}o{order}"


class Bucket:
    """The work of one step in one bucket."""

    def __init__(
        self, plan: MaintenancePlan, stage: Stage, algebra: Algebra, variables: Variables, state: State
    ) -> None:
        self.plan = plan
        self.stage = stage
        self.algebra = algebra
        self.variables = variables
        self.state = state
        self._changed: dict[int, list[Run]] = {}
        self.mixed: list[MixedChange] = []
        """The changes of an answer with categories, one per trigger that gave one."""
        self.multiplied: dict[int, int] = {}
        """The entries that were made of products, by the view that is kept."""
        self.products: list[Product] = []
        """The products in the change of the view that the stage computes, if that is passed on."""
        self._arranged: dict[tuple[int, int], list[Run]] = {}
        self._sets: dict[tuple[int, int], RunSet] = {}  # what has been read, with the changes since

    def run(
        self, changes: Mapping[str, Sequence[Run]], products: Mapping[str, Sequence[Product]] | None = None
    ) -> None:
        """Run the triggers of the changed inputs, given the changes of their leaf views."""
        leaves: dict[int, Change] = {}
        triggers = sorted(self.stage.triggers, key=lambda trigger: trigger.relation not in self.plan.static)
        for trigger in triggers:
            given = [run for run in changes.get(trigger.relation, ()) if run.rows]
            run = merge(self.algebra.group(trigger.leaf), given) if given else None
            own = list((products or {}).get(trigger.relation, ()))
            if leaf := self._settled(trigger.leaf, Change(run, own)):
                leaves[trigger.leaf] = leaf
        if self.plan.is_tree:
            self._up_the_tree(leaves)
        else:
            for trigger in triggers:
                if trigger.leaf in leaves:
                    self._trigger(trigger, leaves[trigger.leaf])

    def _settled(self, view: int, change: Change) -> Change:
        """The change with as entries what has no more of them than its parts have; all of an indicator projection."""
        if not change.products:
            return change
        here = self.plan.views[view]
        # A key appears or vanishes with the first and the last of its rows, so those are told by entries.
        stays = [not here.indicator and is_worth_it(product) for product in change.products]
        runs = [self._multiplied_out(view, p) for p, kept in zip(change.products, stays, strict=True) if not kept]
        if here.indicator:
            self._counted(view, runs)
        rest = [product for product, kept in zip(change.products, stays, strict=True) if kept]
        return Change(change.run, rest).with_runs(self.algebra.group(view), runs)

    def _multiplied_out(self, view: int, product: Product) -> Run:
        here = self.plan.views[view]
        keys, scope = here.orders[0], self.algebra.scope(view)
        return multiplied_out(self.algebra, self.variables, product, keys, scope, here.name)

    def _counted(self, view: int, runs: Sequence[Run]) -> None:
        self.multiplied[view] = self.multiplied.get(view, 0) + sum(run.rows for run in runs)

    def _trigger(self, trigger: Trigger, leaf: Change) -> None:
        changed = {trigger.leaf: leaf}
        for statement in trigger.statements:
            if (source := changed.get(statement.source)) is not None and (target := self._delta(statement, source)):
                changed[statement.target] = target
        for view, change in changed.items():
            self._note(view, change)

    def _up_the_tree(self, leaves: Mapping[int, Change]) -> None:
        """Run all triggers together, view by view: changes that meet at a view go on as one.

        A table that is joined with itself twenty times changes twenty leaves, whose paths have all views in common.
        """
        changed = dict(leaves)
        for target, statements in self.plan.joins_of(self.stage):
            made: list[Change] = []
            for statement in statements:
                change = changed.get(statement.source)
                if change is not None:
                    shown = Change(self._shown(statement.source, change.run), change.products)
                    made.append(self._delta(statement, shown))
                    self._note(statement.source, change)  # changes of the views beside it see it from now on
            if together := Change.sum(self.algebra.group(target), made):
                changed[target] = together
        if self.stage.root in changed:
            self._note(self.stage.root, changed[self.stage.root])

    def _shown(self, view: int, change: Run | None) -> Run | None:
        """What others see of a change: of an indicator projection only the keys that appear or vanish."""
        if change is None or not self.plan.views[view].indicator:
            return change
        group = self.algebra.group(view)
        seen = transitions(group, lookup(group, self._read(view, 0), change.words), change.payload)
        there = np.flatnonzero(~group.is_zero(seen))
        return Run(change.words, seen, change.values).take(there)

    def _delta(self, statement: Statement, source: Change) -> Change:
        """The change of a statement's target; an answer with categories is not a run, and is put aside."""
        algebra, run = self.algebra, source.run
        if statement.target == self.plan.root and isinstance(algebra, MomentsAlgebra) and algebra.categorical:
            mixed = None if run is None else mixed_delta(self.plan, algebra, self.variables, statement, run, self._read)
            self.mixed += [] if mixed is None else [mixed]
            return Change()
        if run is not None and run.rows:
            run = delta(self.plan, algebra, self.variables, statement, run, self._read)
        found = [
            product_delta(self.plan, algebra, self.variables, statement, product, self._read)
            for product in source.products
        ]
        return self._settled(statement.target, Change(run, [product for product in found if product is not None]))

    def _note(self, view: int, change: Change) -> None:
        """Let others see the change of a view, and keep it if the view is kept; products then become entries."""
        here, run = self.plan.views[view], change.run
        if view == self.stage.root and view != self.plan.root:
            self.products += change.products
        elif change.products and here.kept:
            made = [self._multiplied_out(view, product) for product in change.products]
            self._counted(view, made)
            run = change.with_runs(self.algebra.group(view), made).run
        if run is None or not run.rows:
            return
        self._changed.setdefault(view, []).append(run)
        for number, order in enumerate(here.orders):
            if view in self.plan.probed or here.kept:
                arranged = in_order(self.variables, run, here.orders[0], order)
                self._arranged.setdefault((view, number), []).append(arranged)
                if (view, number) in self._sets:
                    self._sets[view, number] = self._sets[view, number].with_run(arranged)

    def _read(self, view: int, order: int) -> Sequence[AnyRun]:
        if (view, order) not in self._sets:
            runs = as_set(self.state.get(part_name(view, order), ()))
            for run in self._arranged.get((view, order), ()):
                runs = runs.with_run(run)
            self._sets[view, order] = runs
        return self._sets[view, order]

    def root(self) -> Sequence[Run]:
        """The changes of the view that the stage computes, one per trigger that gave one."""
        return self._changed.get(self.stage.root, ())

    def kept(self) -> tuple[dict[str, Run], dict[str, int]]:
        """The changes of the views that are kept, and by how many entries each grows."""
        runs: dict[str, Run] = {}
        live: dict[str, int] = {}
        for (view, order), changes in self._arranged.items():
            if not self.plan.views[view].kept or view == self.stage.root:
                continue
            part, group = part_name(view, order), self.algebra.group(view)
            before = self.state.get(part, ())
            run = without_residue(group, before, merge(group, changes))
            if run.rows:
                runs[part] = run
                live[part] = growth(group, before, run)
        return runs, live


def without_residue(group: Group, before: Sequence[AnyRun], change: Run) -> Run:
    """Remove vanishing keys exactly, so that no rounding residue is left if they return.

    A key vanishes only where its count goes down, so nothing is looked up for insertions.
    """
    down = np.flatnonzero(counts(change.payload) < 0)
    if group.exact or not len(down) or not before:
        return change
    old = lookup(group, before, np.ascontiguousarray(change.words[:, down]))
    vanishing = counts(old) + counts(take(change.payload, down)) == 0
    if not vanishing.any():
        return change
    exact = take(group.negate(old), vanishing)
    payload = tuple(column.copy() for column in change.payload)
    for column, values in zip(payload, exact, strict=True):
        column[down[vanishing]] = values
    return Run(change.words, payload, change.values)
