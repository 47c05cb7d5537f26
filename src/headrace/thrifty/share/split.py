"""How the readers of a shared subplan are best split: the local problem of unsharing, and two ways to solve it.

Each part of a split runs the operators for its own readers, at the lowest pace with which the final work of these
operators is what the strictest of the readers allows. Clustering begins with every reader by itself and merges the two
parts with the highest *sharing benefit* (Eq. 4.4). More readers want more rows, under a goal that is no weaker: so the
pace of a merged part is looked for from the larger of the two old paces on (Tang, "Thrifty Query Processing", 4.3.1).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from headrace.thrifty.share.dag import Part
from headrace.thrifty.share.divide import Readers, piece
from headrace.thrifty.simulate import Work, simulated

_NEAR = 1.1  # a constraint out of reach is approached up to this factor of the least final work


@dataclass(frozen=True)
class LocalPart:
    """Some readers together: their pace, and the total work (`W_PT`) and final work (`W_F`) of their operators."""

    views: tuple[str, ...]
    pace: int
    total: float
    final: float
    wanted: float

    @property
    def is_met(self) -> bool:
        """Whether the strictest of its readers gets what it wants."""
        return self.final <= self.wanted


class LocalProblem:
    """Splits of the readers of one subplan, and what they cost.

    Parameters
    ----------
    operators : the operators that are to be split; the others stay shared.
    wanted : per reader, its local constraint: the most final work that these operators may do for it. What a reader
        cannot have even by itself, it comes near to.
    most : the highest pace.
    """

    def __init__(
        self, part: Part, readers: Readers, operators: Collection[int], wanted: Mapping[str, float], most: int
    ) -> None:
        self._part = part
        self._readers = readers
        self._operators = frozenset(operators)
        self._most = most
        self._pieces: dict[tuple[str, ...], Part] = {}
        self._work: dict[tuple[tuple[str, ...], int], Work] = {}
        self._parts: dict[tuple[tuple[str, ...], int], LocalPart] = {}
        self._wanted = {view: max(wanted[view], _NEAR * self._least(view)) for view in readers.views}

    def part(self, views: Sequence[str], start: int = 1) -> LocalPart:
        """Some readers with the lowest pace that meets their constraints; with the least final work if none does.

        Final work falls with the pace, but for the corners of the model. So paces are tried in growing distances, and
        the lowest that meets the constraints is looked for between the last two.
        """
        key = tuple(sorted(views))
        if (key, start) not in self._parts:
            wanted = min(self._wanted[view] for view in views)
            missed, met = start - 1, None
            for pace in _growing(start, self._most):
                if self._at(key, pace).final <= wanted:
                    met = pace
                    break
                missed = pace
            while met is not None and met - missed > 1:
                middle = (met + missed) // 2
                met, missed = (middle, missed) if self._at(key, middle).final <= wanted else (met, middle)
            best = met or min(_growing(start, self._most), key=lambda pace: self._at(key, pace).final)
            work = self._at(key, best)
            self._parts[key, start] = LocalPart(key, best, self._pieces[key].held + work.total, work.final, wanted)
        return self._parts[key, start]

    def total(self, split: Sequence[LocalPart]) -> float:
        """The local total work of a split (Eq. 4.3)."""
        return sum(part.total for part in split)

    def clustered(self) -> list[LocalPart]:
        """The best split on the way from readers by themselves to all of them together."""
        found = best = [self.part([view]) for view in self._readers.views]
        while len(found) > 1:
            merged = {
                (one, other): self.part([*one.views, *other.views], max(one.pace, other.pace))
                for one, other in combinations(found, 2)
            }
            pair = max(
                merged,
                key=lambda pair: (merged[pair].is_met, pair[0].total + pair[1].total - merged[pair].total),
            )
            # A pair may be worth less than three readers of a kind, so merging goes on to the end.
            found = [part for part in found if part not in pair] + [merged[pair]]
            best = min(best, found, key=self._value)
        return best

    def exhaustive(self) -> list[LocalPart]:
        """The best of all splits; for a few readers only."""
        every = ([self.part(views) for views in split] for split in _partitions(list(self._readers.views)))
        return min(every, key=self._value)

    def _value(self, split: Sequence[LocalPart]) -> tuple[int, float]:
        """Fewer readers that do not get what they want are better, and then less work."""
        return sum(len(part.views) for part in split if not part.is_met), self.total(split)

    def _least(self, view: str) -> float:
        return min(self._at((view,), pace).final for pace in _growing(1, self._most))

    def _at(self, views: tuple[str, ...], pace: int) -> Work:
        if (views, pace) not in self._work:
            if views not in self._pieces:
                own = {view: self._readers.needed[view] & self._operators for view in views}
                self._pieces[views] = piece(self._part, self._readers, own).part
            made = self._pieces[views]
            self._work[views, pace] = simulated(made.plan, (pace,) * len(made.plan.paths), made.units, self._most)
        return self._work[views, pace]


def _growing(start: int, most: int) -> list[int]:
    """Paces in growing distances.

    >>> _growing(3, 20)
    [3, 4, 6, 10, 18, 20]
    """
    found, step = [start], 1
    while found[-1] < most:
        found.append(min(most, found[-1] + step))
        step *= 2
    return found


def local_constraints(
    part: Part,
    readers: Readers,
    operators: Collection[int],
    wanted: Mapping[str, float],
    alone: Mapping[str, float],
    parts: int = 1,
) -> dict[str, float]:
    """What operators of a subplan may leave for the trigger: a share of what a view may leave as a whole.

    It is the share that these operators have in the work of the view, if that runs by itself and in one batch. The work
    of holding rows when they come is part of both.

    Parameters
    ----------
    alone : per view, all of that work.
    parts : in which the data comes, there too.
    """
    out = {}
    for view in readers.views:
        own = readers.needed[view] & frozenset(operators)
        made = piece(part, readers, {view: own}).part
        work = made.held + simulated(made.plan, (1,) * len(made.plan.paths), made.units, parts).final
        out[view] = wanted[view] * min(1.0, work / alone[view]) if alone[view] else wanted[view]
    return out


def _partitions(items: list[str]) -> Iterator[list[list[str]]]:
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for partition in _partitions(rest):
        yield [[first], *partition]
        for i, part in enumerate(partition):
            yield [*partition[:i], [first, *part], *partition[i + 1 :]]
