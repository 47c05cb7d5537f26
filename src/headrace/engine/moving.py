"""Where state goes when views come to share other subplans: what is taken over, what is filled, and what is dropped.

Each arrangement of the new plan is looked for in the old one by its fingerprint. If it is found, its runs are referred
to under the new name, and nothing is computed. Only what is found nowhere has to be filled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from headrace.engine.definition import PlannedView, SqlAnswer
from headrace.operators.dropping import holdings
from headrace.operators.tree_view import TreeView
from headrace.runtime.log import Snapshot
from headrace.runtime.program import (
    arrangements_kept,
    arrangements_waiting,
    pending_arrangement,
    view_arrangement,
)
from headrace.runtime.record import Arrangements
from headrace.thrifty.share.fingerprint import fingerprints
from headrace.thrifty.share.plan import Shared, given_to


@dataclass(frozen=True)
class Wanted:
    """State of a view or a shared subplan that the new plan has, and the old one had not under this name.

    Parameters
    ----------
    taken : the arrangement of the old plan that holds the same, by part.
    filled : the parts that no arrangement of the old plan holds.
    """

    name: str
    kernel: TreeView
    taken: Mapping[str, str]
    filled: frozenset[str]

    @property
    def arrangements(self) -> frozenset[str]:
        """The arrangements that are filled."""
        return frozenset(view_arrangement(self.name, part) for part in self.filled)

    def taken_in(self, snapshot: Snapshot) -> Arrangements:
        """The state that is taken over, by its new name."""
        return {
            view_arrangement(self.name, part): snapshot.arrangements.get(source, {})
            for part, source in self.taken.items()
        }


@dataclass(frozen=True)
class Moves:
    """How the state of the old plan becomes that of the new one.

    Parameters
    ----------
    dropped : arrangements that the new plan does not have.
    """

    wanted: tuple[Wanted, ...]
    dropped: tuple[str, ...]

    @property
    def filled(self) -> tuple[Wanted, ...]:
        """The views and subplans of which something has to be filled."""
        return tuple(one for one in self.wanted if one.filled)

    def taken_in(self, snapshot: Snapshot) -> Arrangements:
        """All state that is taken over, by its new name."""
        return {name: states for one in self.wanted for name, states in one.taken_in(snapshot).items()}


def moves_of(
    before: Mapping[str, Shared], after: Mapping[str, Shared], views: Mapping[str, PlannedView], snapshot: Snapshot
) -> Moves:
    """How state moves, if views share the subplans `after` in place of those `before`."""
    known = _known(before, views, snapshot)
    wanted: list[Wanted] = []
    dropped: list[str] = []
    for name, one in before.items():
        if one.is_answer:
            continue  # its state is that of a view
        if name not in after or after[name].kernel != one.kernel:
            dropped += [*arrangements_kept(name, one.kernel), *arrangements_waiting(name, one.kernel)]
    for name, one in after.items():
        if one.is_answer:
            continue
        if name not in before or before[name].kernel != one.kernel:
            wanted.append(_wanted(name, one.kernel, one.kernel.arrangements, known))
    for name, view in views.items():
        kernel = view.kernel
        if not isinstance(kernel, TreeView):
            continue
        changed = replace(kernel.alone, given=given_to(name, after))
        dropped += [view_arrangement(name, part) for part in kernel.arrangements if part not in changed.arrangements]
        gone = {*arrangements_waiting(name, kernel)} - {*arrangements_waiting(name, changed)}
        dropped += sorted(gone)
        new = [part for part in changed.arrangements if part not in kernel.arrangements]
        if new:
            wanted.append(_wanted(name, changed, new, known))
    return Moves(tuple(wanted), tuple(dropped))


def _wanted(name: str, kernel: TreeView, parts: Collection[str], known: Mapping[str, str]) -> Wanted:
    """What a view or subplan needs; an operator whose parts belong together takes over all of them, or none."""
    prints = fingerprints(kernel)
    found = {part: known[prints[part]] for part in parts if prints.get(part) in known}
    for one in holdings(kernel):
        if any(part in parts and part not in found for part in one.parts):
            found = {part: source for part, source in found.items() if part not in one.parts}
    return Wanted(name, kernel, found, frozenset(parts) - found.keys())


def _known(before: Mapping[str, Shared], views: Mapping[str, PlannedView], snapshot: Snapshot) -> dict[str, str]:
    """By fingerprint, an arrangement of the old plan that is as new as the tables."""
    dropped = {name: frozenset(parts) for name, parts in snapshot.unkept.items()}
    subplans = {name: one.kernel for name, one in before.items() if not one.is_answer}
    holders = {name: replace(kernel, unkept=dropped.get(name, frozenset())) for name, kernel in subplans.items()}
    for name, view in views.items():
        # State from which windows were closed does not follow from the rows of tables.
        if isinstance(view.kernel, TreeView) and isinstance(view.answer, SqlAnswer) and not view.is_final:
            holders[name] = view.kernel
    return {
        text: view_arrangement(name, part)
        for name, kernel in holders.items()
        for part, text in _current(name, kernel, snapshot)
    }


def _current(name: str, kernel: TreeView, snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """The parts before whose operators, and before all operators below, no change waits; with their fingerprints."""
    behind = {number for number, layout in enumerate(kernel.layouts) if _waits(snapshot, name, layout.accepts)}
    behind |= {number for number, one in kernel.given.items() if _waits(snapshot, one.by)}
    for part, text in fingerprints(kernel).items():
        if behind.isdisjoint(kernel.tree.from_top(kernel.owner(part))):
            yield part, text


def _waits(snapshot: Snapshot, name: str, parts: Collection[str] | None = None) -> bool:
    """Whether changes wait for a view or a subplan, at some parts or at all."""
    prefix = pending_arrangement(name, "")
    waiting = [part.removeprefix(prefix) for part in snapshot.waiting() if part.startswith(prefix)]
    return any(parts is None or part in parts for part in waiting)
