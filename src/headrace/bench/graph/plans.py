"""Plans that no user can ask for, and that a comparison needs: views filled in another way, and without indicators.

Filling a view of first-order deltas from a graph that is there lists every two-path. What it then keeps is cheap all
the same: the edges in some orders, and a count. So it is filled by joins of the smaller side of each row, and
maintained by first-order deltas from then on. A view without indicator projections is planned as if there were none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

from headrace.engine.strategies import factorized
from headrace.factorized import baselines, maintenance
from headrace.factorized.maintenance import Trigger, View


@contextmanager
def filled_by_the_smaller_side() -> Iterator[None]:
    """Views of first-order deltas that are made meanwhile are filled as factorized ones would be.

    A plan is made anew when its location is opened, so the view has to be opened again outside of this context. Until
    then it has a few arrangements more, which the plan of first-order deltas does not know.
    """
    plain, module = maintenance.arranged, cast(Any, baselines)

    def both(views: list[View], triggers: list[Trigger]) -> tuple[tuple[View, ...], tuple[Trigger, ...]]:
        # Arrangements are known by their number: those of the plan that takes over come first.
        own = plain(views, triggers)[0]
        return _reordered(own, *plain(views, triggers, intersect=True))

    module.arranged = both
    try:
        yield
    finally:
        module.arranged = plain


def _reordered(
    own: tuple[View, ...], views: tuple[View, ...], triggers: tuple[Trigger, ...]
) -> tuple[tuple[View, ...], tuple[Trigger, ...]]:
    placed = tuple(
        replace(view, orders=(*first.orders, *(order for order in view.orders if order not in first.orders)))
        for first, view in zip(own, views, strict=True)
    )

    def moved(probe: Any, factors: tuple[int, ...]) -> Any:
        view = factors[probe.slot]
        order = placed[view].orders.index(views[view].orders[probe.order])
        return replace(probe, order=order, beside=tuple(moved(one, factors) for one in probe.beside))

    return placed, tuple(
        replace(
            trigger,
            statements=tuple(
                replace(one, probes=tuple(moved(probe, one.factors) for probe in one.probes))
                for one in trigger.statements
            ),
        )
        for trigger in triggers
    )


@contextmanager
def without_indicators() -> Iterator[None]:
    """Views over joins that are made or opened meanwhile have no indicator projections."""
    chosen = factorized.Factorized._options
    factorized.Factorized._options = lambda self, query, join: replace(  # type: ignore[method-assign]
        chosen(self, query, join), indicators=False
    )
    try:
        yield
    finally:
        factorized.Factorized._options = chosen  # type: ignore[method-assign]
