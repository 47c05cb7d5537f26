"""The ways to choose paces that the benchmark compares, all by the same cost model, fitted to the same flushes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from headrace.bench.pace.bias import biased
from headrace.bench.pace.playing import Played
from headrace.plan.paths import paths_of
from headrace.thrifty.measured import Measured
from headrace.thrifty.observed import learnt
from headrace.thrifty.paces import Chosen, Search
from headrace.thrifty.simulate import FlatPlan
from headrace.thrifty.unit_costs import UnitCosts

OURS, UNIFORM, LEAF, HAND, EAGER, BATCH = "ours", "uniform", "leaf", "hand", "eager", "batch"
PLANNED_PACE, PLANNED_SHARE = 100, 0.01  # for which the time of planning is measured
_REPEAT = 3


@dataclass(frozen=True)
class Choice:
    """Paces by path, what the model says of them, and the milliseconds that choosing them took."""

    paces: Mapping[str, int]
    chosen: Chosen
    milliseconds: float


@dataclass(frozen=True)
class Model:
    """What a pass has shown of a query.

    Parameters
    ----------
    sources : for each path, whether it begins at a table.
    most : the highest pace, which is the number of parts in which the data comes.
    held : CPU seconds of holding the rows of a trigger.
    """

    plan: FlatPlan
    units: UnitCosts
    sources: tuple[bool, ...]
    most: int
    held: float

    @classmethod
    def of(cls, batch: Played, partial: Played, most: int) -> Model:
        """Learn from one view that was flushed at the trigger only, and one that was flushed before it as well."""
        plan = learnt(partial.tree, partial.flushes, partial.base)
        assumed = UnitCosts.assumed(plan.kinds.tolist(), partial.passes)
        units = Measured().after(batch.flushes, assumed).after(partial.flushes, assumed).units(assumed)
        return cls(plan, units, tuple(path.is_source for path in paths_of(partial.tree)), most, batch.held)

    def biased(self, factor: float) -> Model:
        """The same with statistics that are wrong by a factor."""
        return replace(self, plan=biased(self.plan, factor))

    def search(self, most: int | None = None) -> Search:
        """A search that has simulated nothing yet."""
        return Search(self.plan, self.units, self.most if most is None else most, 1e6 * self.held)

    def choice(self, approach: str, share: float) -> Choice:
        """The paces that an approach chooses for a share of final work."""
        search = self.search()
        start = time.perf_counter()
        chosen = APPROACHES[approach](self, search, share)
        took = 1e3 * (time.perf_counter() - start)
        return Choice(dict(zip(self.plan.paths, chosen.paces, strict=True)), chosen, took)

    def planning_ms(self) -> float:
        """The time of our search at a high maximum pace and a low share: the median of some runs, in milliseconds."""
        times = []
        for _ in range(_REPEAT):
            search = self.search(PLANNED_PACE)
            start = time.perf_counter()
            search.best(PLANNED_SHARE)
            times.append(1e3 * (time.perf_counter() - start))
        return statistics.median(times)


def _fixed(search: Search, paces: tuple[int, ...], share: float) -> Chosen:
    work = search.cost(paces)
    return Chosen(paces, work, work.final <= search.final_work(share))


APPROACHES: dict[str, Callable[[Model, Search, float], Chosen]] = {
    OURS: lambda model, search, share: search.best(share),
    UNIFORM: lambda model, search, share: search.uniform(share),
    LEAF: lambda model, search, share: search.by_source(share, model.sources),
    HAND: lambda model, search, share: search.hand_tuned(share),
    EAGER: lambda model, search, share: _fixed(search, search.eager, share),
    BATCH: lambda model, search, share: _fixed(search, search.batch, share),
}
"""By name: the paces that an approach takes for a share of final work."""
