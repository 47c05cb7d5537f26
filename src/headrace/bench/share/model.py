"""What a pass has shown of views and of the subplans that they share, as a plan whose paces can be searched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.bench.share.playing import Played, PlayedPart
from headrace.engine.pacing_together import Together, ends_of, fed_by
from headrace.engine.unsharing import taken_apart
from headrace.thrifty.measured import Measured
from headrace.thrifty.observed import learnt
from headrace.thrifty.paces import MARGIN
from headrace.thrifty.schedule import LEARNING
from headrace.thrifty.share.apart import Apart
from headrace.thrifty.share.dag import Part, SharedPlan, alone
from headrace.thrifty.share.paces import Chosen
from headrace.thrifty.unit_costs import UnitCosts


@dataclass(frozen=True)
class Model:
    """Parts of a shared plan, with the highest pace."""

    subplans: Mapping[str, Part]
    views: Mapping[str, Part]
    most: int
    played: Played

    @classmethod
    def of(cls, played: Played, most: int, *, assumed: bool) -> Model:
        """Learn from a pass with flushes of many sizes.

        Parameters
        ----------
        assumed : keep to the assumed costs, so that nothing depends on the machine.
        """
        subplans = {name: _part(part, assumed) for name, part in played.subplans.items()}
        views = {name: _part(part, assumed, subplans) for name, part in played.views.items()}
        return cls(subplans, views, most, played)

    def work(self, shares: Mapping[str, float]) -> dict[str, float]:
        """The final work that views want, as shares of doing everything at the trigger; of views that share nothing.

        An estimate is not exact, so it has to be below the share, as when the engine chooses.
        """
        whole = {name: alone(self.views[name], {}, {}, self.most)[1] for name in shares}
        return {name: share * whole[name] / (1 + MARGIN * (1 - share)) for name, share in shares.items()}

    def plan(self, wanted: Mapping[str, float]) -> SharedPlan:
        """The plan, for views that want such final work."""
        return SharedPlan(self.subplans, self.views, wanted, most=self.most)

    def taken_apart(self, wanted: Mapping[str, float], found: Chosen, off: Model) -> tuple[Apart, ...]:
        """What is better not shared, as the engine would find after a trigger.

        Parameters
        ----------
        off : what is known of the views if they share nothing.
        """
        whole = {name: alone(part, {}, {}, self.most)[1] for name, part in off.views.items()}
        kernels = {name: part.kernel.alone for name, part in self.played.views.items()}
        seen = Together(self.plan(wanted), found, whole, {})
        return tuple(taken_apart(seen, self.played.shared, kernels, lambda: self.played.samples))

    def paces(self, found: Chosen) -> dict[str, dict[str, int]]:
        """Paces by view, those of its subplans included."""
        return {
            name: paces | {subplan: found.subplans[subplan] for subplan in self.views[name].below}
            for name, paces in found.views.items()
        }


def _part(played: PlayedPart, assumed: bool, subplans: Mapping[str, Part] | None = None) -> Part:
    kernel = played.kernel
    plan = learnt(kernel.reading, played.flushes, played.trigger.base, None, kernel.paths)
    units = UnitCosts.assumed(plan.kinds.tolist(), played.passes)
    if not assumed:
        units = Measured().after(played.flushes, units).units(units)
    by = {one.by for one in kernel.given.values()}
    feeds = ((n, side, feed) for n, side, _, feed in kernel.reading.feeds() if n in kernel.own)
    reads = {(n, side): feed.table for n, side, feed in feeds if feed.producer is None and feed.table in by}
    ends = ends_of(kernel)
    seen = {name: part.plan for name, part in (subplans or {}).items()}
    given = fed_by(kernel, played.trigger, seen, dict.fromkeys(kernel.holds, LEARNING))
    fed = {(path.number, path.side): given[path.name] for path in kernel.paths if path.name in given}
    return Part(plan, units, reads, 0.0 if assumed else 1e6 * played.held, {at: ends[at] for at in reads}, fed)
