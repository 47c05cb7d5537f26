"""Which changes come next, per table: from what has come, or as the user says.

Late data comes in batches that shrink by about the same factor (a geometric tail): the next batch is the last one times
that factor. A table that is cleaned, or loaded, changes in every step until it is done. So a table is expected to
change if it has changed lately, by its last number of rows times the factor between its last two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

_LATELY = 3  # steps after which a table that has not changed is expected to stay as it is
_REMEMBERED = 8  # steps of which the numbers of changed rows are kept
_NEWS = 0.3  # the weight of the last step in the average error
_GROWTH = 2.0  # a tail does not grow; a stream may, but not by more than this from step to step


@dataclass(frozen=True)
class Change:
    """Rows of one table that a step inserts and deletes."""

    inserted: float = 0.0
    deleted: float = 0.0

    @property
    def rows(self) -> float:
        return self.inserted + self.deleted


@dataclass(frozen=True)
class Prediction:
    """What has come, per table and step (the last one last), and what is said to come.

    Parameters
    ----------
    said : by the user; it holds until something else is said.
    error : of the expected rows, per table and on average: 0 if they were right, 1 if all or nothing of them came.

    >>> late = Prediction().after({"orders": Change(90.0)}).after({"orders": Change(9.0)})
    >>> late.next()["orders"].inserted
    0.9
    """

    history: Mapping[str, tuple[Change, ...]] = field(default_factory=dict)
    steps: int = 0
    last: Mapping[str, int] = field(default_factory=dict)  # the step in which each table changed last
    said: Mapping[str, Change] | None = None
    error: float | None = None
    missed: int = 0  # steps that changed a table of which no change was expected

    def next(self) -> dict[str, Change]:
        """The rows of each table that the next step is expected to change."""
        if self.said is not None:
            return {table: change for table, change in self.said.items() if change.rows > 0}
        lately = [table for table, step in self.last.items() if self.steps - step < _LATELY]
        return {table: _next(self.history[table]) for table in lately}

    def after(self, came: Mapping[str, Change]) -> Prediction:
        """The prediction after a step."""
        came = {table: change for table, change in came.items() if change.rows}
        expected = self.next()
        history = dict(self.history)
        for table, change in came.items():
            history[table] = (*history.get(table, ()), change)[-_REMEMBERED:]
        known = self.said is not None or self.steps > 0
        return replace(
            self,
            history=history,
            steps=self.steps + 1,
            last={**self.last, **dict.fromkeys(came, self.steps + 1)},
            error=self._error(expected, came) if known else self.error,
            missed=self.missed + (known and not came.keys() <= expected.keys()),
        )

    def _error(self, expected: Mapping[str, Change], came: Mapping[str, Change]) -> float | None:
        found = []
        for table in {**expected, **came}:
            pair = [one.get(table, Change()).rows for one in (expected, came)]
            found.append(abs(pair[0] - pair[1]) / max(pair))
        if not found:
            return self.error
        now = sum(found) / len(found)
        return now if self.error is None else self.error + _NEWS * (now - self.error)

    def to_json(self) -> dict[str, Any]:
        return {
            "history": {t: [[c.inserted, c.deleted] for c in changes] for t, changes in self.history.items()},
            "steps": self.steps,
            "last": dict(self.last),
            "said": None if self.said is None else {t: [c.inserted, c.deleted] for t, c in self.said.items()},
            "error": self.error,
            "missed": self.missed,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Prediction:
        if not data:
            return cls()
        said = data["said"]
        return cls(
            {table: tuple(Change(*pair) for pair in changes) for table, changes in data["history"].items()},
            data["steps"],
            data["last"],
            None if said is None else {table: Change(*pair) for table, pair in said.items()},
            data["error"],
            data["missed"],
        )


def _next(changes: tuple[Change, ...]) -> Change:
    last = changes[-1]
    factor = min(_GROWTH, last.rows / changes[-2].rows) if len(changes) > 1 else 1.0
    return Change(last.inserted * factor, last.deleted * factor)
