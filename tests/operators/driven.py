"""Drives a tree of operators without Spark and without files: lifts changes, runs stages, adds runs to state."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from headrace.operators.aggregate import read
from headrace.operators.kernel import Evaluated, Sent, Traffic
from headrace.operators.tree_view import TreeView
from headrace.relation.run import Run, merge

Row = tuple[object, ...]
Changes = Mapping[str, Sequence[tuple[Row, int]]]


class Driven:
    """A view with its state in memory."""

    def __init__(self, view: TreeView) -> None:
        self.view = view
        self.state: dict[tuple[str, int], Run] = {}
        self.traffic: dict[str, Traffic] = {}
        seeds = [Sent(1, b, p, run) for b, parts in view.seeds.items() for p, run in parts.items()]
        self._run(seeds)

    def step(self, changes: Changes) -> None:
        """Apply changed rows of sources, whose columns are already those of their ports."""
        sent: list[Sent] = []
        for side in self.view.sides:
            rows = changes.get(side.source, ())
            if rows:
                columns = [
                    pa.array([row[i] for row, _ in rows], expression.type.arrow)
                    for i, expression in enumerate(side.keys)
                ]
                diff = np.array([diff for _, diff in rows], np.int64)
                evaluated = Evaluated(columns, [], diff, np.arange(len(diff)))
                lifted = self.view.lift(side.source, evaluated, self.view.buckets)
                sent += [Sent(0, b, part, run) for b, parts in lifted.items() for part, run in parts.items()]
        self._run(sent)

    def _run(self, sent: list[Sent]) -> None:
        self.traffic = {}
        added: list[tuple[str, int, Run]] = []  # state is that before the step, for all stages of it
        for stage in range(self.view.placement.stages):
            arrived: dict[int, dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
            for one in sent:
                if one.stage == stage:
                    arrived[one.bucket][one.part].append(one.run)
            for bucket, parts in arrived.items():
                state = {p: self._runs(p, self.view.home(p, bucket)) for p in self.view.stages[stage]}
                done = self.view.reduce(stage, bucket, state, parts)
                added += [(part, self.view.home(part, bucket), run) for part, run in done.runs.items()]
                sent += done.sent
                for number, more in done.traffic.items():
                    self.traffic[number] = self.traffic.get(number, Traffic()) + more
        for part, bucket, run in added:
            runs = [*self._runs(part, bucket), run]
            self.state[part, bucket] = merge(self.view.arrangements[part], runs)

    def _runs(self, part: str, bucket: int) -> list[Run]:
        run = self.state.get((part, bucket))
        return [] if run is None else [run]

    def answer(self) -> Counter[Row]:
        """The rows of the answer, each as often as it occurs; of an aggregate, its groups."""
        out: Counter[Row] = Counter()
        layout = self.view.layout
        names = [f"k{i}" for i in range(len(layout.plan.keys))] + [f"a{i}" for i in range(len(layout.plan.aggregates))]
        for bucket in range(self.view.buckets):
            rows = read(layout, {part: self._runs(part, bucket) for part in layout.arrangements})
            times = rows.column("__rows").to_pylist()
            for row, count in zip(rows.select(names).to_pylist(), times, strict=True):
                out[tuple(row.values())] += count if layout.plan.aggregates == () else 1
        return out

    def kept(self, part: str) -> int:
        """How many entries an arrangement holds."""
        return sum(run.rows for (name, _), run in self.state.items() if name == part)

    def entries(self) -> int:
        """How many entries all arrangements hold."""
        return sum(run.rows for run in self.state.values())
