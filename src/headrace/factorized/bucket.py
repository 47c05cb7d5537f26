"""One bucket of a plan in one step: triggers run one after the other, and their changes are added up.

Changes of several relations in a step are handled one relation at a time: each trigger sees the changes of the triggers
before it, so together they give the change of the whole join, including products of changes. Relations that never
change again come first, so views that are needed only for filling never have to be stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from headrace.factorized.algebra import Algebra
from headrace.factorized.delta import delta, in_order
from headrace.factorized.maintenance import MaintenancePlan, Stage
from headrace.operators.kernel import State
from headrace.relation.arrangement import counts, growth, lookup
from headrace.relation.run import Run, merge
from headrace.relation.runset import AnyRun, as_set
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
        self._arranged: dict[tuple[int, int], list[Run]] = {}

    def run(self, changes: Mapping[str, Sequence[Run]]) -> None:
        """Run the triggers of the changed inputs; `changes` holds the changes of their leaf views."""
        triggers = sorted(self.stage.triggers, key=lambda trigger: trigger.relation not in self.plan.static)
        for trigger in triggers:
            given = [run for run in changes.get(trigger.relation, ()) if run.rows]
            if not given:
                continue
            leaf = merge(self.algebra.group(trigger.leaf), given)
            if not leaf.rows:
                continue
            changed = {trigger.leaf: leaf}
            for statement in trigger.statements:
                source = changed.get(statement.source)
                if source is None:
                    continue
                target = delta(self.plan, self.algebra, self.variables, statement, source, self._read)
                if target is not None and target.rows:
                    changed[statement.target] = target
            for view, run in changed.items():
                self._note(view, run)

    def _note(self, view: int, run: Run) -> None:
        self._changed.setdefault(view, []).append(run)
        here = self.plan.views[view]
        for number, order in enumerate(here.orders):
            if view in self.plan.probed or here.kept:
                arranged = in_order(self.variables, run, here.orders[0], order)
                self._arranged.setdefault((view, number), []).append(arranged)

    def _read(self, view: int, order: int) -> Sequence[AnyRun]:
        runs = as_set(self.state.get(part_name(view, order), ()))
        for run in self._arranged.get((view, order), ()):
            runs = runs.with_run(run)
        return runs

    def root(self) -> Run | None:
        """The change of the view that the stage computes."""
        runs = self._changed.get(self.stage.root)
        return merge(self.algebra.group(self.stage.root), runs) if runs else None

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
