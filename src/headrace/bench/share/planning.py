"""How long it takes to choose paces for a set of views, of which nothing has to be played but the pass that learns.

The thesis asks it for 22 queries that all want a hundredth of their final work left, at paces up to 100 (4.4.3). It
also asks what remembering the cost of each part saves (Algorithm 3). Without that memory, every cost that the search
asks for would be a simulation; so many were asked for, and that many are simulated.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headrace.bench.share.model import Model
from headrace.thrifty.share.paces import Search, together

GOAL, HIGHEST = 0.01, 100


def planning(model: Model, off: Model, views: Mapping[str, str]) -> dict[str, Any]:
    """Choose paces for views with strict goals as the engine does, and say how long that takes.

    Parameters
    ----------
    model, off : what is known of the views with and without sharing.
    """
    finer = replace(model, most=HIGHEST)
    wanted = off.work(dict.fromkeys(views, GOAL))
    start = time.perf_counter()
    searches = [Search(component) for component in finer.plan(wanted).components()]
    found = together([search.best() for search in searches])
    searched = time.perf_counter() - start
    apart = finer.taken_apart(wanted, found, off)
    asked, simulated = (sum(getattr(one.costs, what) for one in searches) for what in ("asked", "simulations"))
    return {
        "goal": GOAL,
        "highest_pace": HIGHEST,
        "seconds": time.perf_counter() - start,
        "search_seconds": searched,
        "costs_asked": asked,
        "simulations": simulated,
        "search_seconds_without_memory": searched * asked / simulated,
        "taken_apart": len(apart),
        "out_of_reach": len(found.missed),
    }


def planning_line(case: str, found: Mapping[str, Any]) -> str:
    """One line for people.

    >>> known = {"goal": 0.01, "highest_pace": 100, "seconds": 2.0, "costs_asked": 9000, "simulations": 300}
    >>> print(planning_line("ten", known | {"search_seconds": 1.5, "search_seconds_without_memory": 45.0}))
    ten: 2.0 s to choose paces up to 100 for goals of 0.01
    its search took 1.5 s: of 9,000 costs it simulated 300 and remembered the others; without memory, some 45 s
    """
    return (
        f"{case}: {found['seconds']:.1f} s to choose paces up to {found['highest_pace']} for goals of {found['goal']}\n"
        f"its search took {found['search_seconds']:.1f} s: of {found['costs_asked']:,} costs it simulated "
        f"{found['simulations']:,} and remembered the others; without memory, some "
        f"{found['search_seconds_without_memory']:.0f} s"
    )
