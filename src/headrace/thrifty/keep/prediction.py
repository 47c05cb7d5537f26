"""Which changes come next, per table: as the user says, as sources announce, or from what has come.

A source that is being played knows which tables it changes, and by about how many rows per batch. Where nobody says
anything, a table is expected to change if it has changed lately: a table that is cleaned, or loaded, changes in every
step until it is done. By how much follows from its `tail`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.relation.from_log import from_log
from headrace.thrifty.keep.change import Change
from headrace.thrifty.keep.tail import REMEMBERED, next_of

_LATELY = 3  # steps after which a table that has not changed is expected to stay as it is
_NEWS = 0.3  # the weight of the last step in the average error

Announced = Mapping[str, Mapping[str, Change]]
"""Per source that is being played: the rows per table that its next batch brings."""


@dataclass(frozen=True)
class Prediction:
    """What has come, per table and step (the last one last), and what is said to come.

    Parameters
    ----------
    said : by the user; it holds until something else is said.
    announced : by sources, each until it ends. A table that no source feeds is then expected only if it has changed
        since their first announcement (`since`): what was loaded before they began does not go on.
    error : of the expected rows, per table and on average: 0 if they were right, 1 if all or nothing of them came.

    >>> late = Prediction().after({"orders": Change(90.0)}).after({"orders": Change(9.0)})
    >>> late.next()["orders"].inserted
    0.9
    >>> late.announcing("file", {"shops": Change(5.0)}).next()
    {'shops': Change(inserted=5.0, deleted=0.0)}
    """

    history: Mapping[str, tuple[Change, ...]] = field(default_factory=dict)
    steps: int = 0
    last: Mapping[str, int] = field(default_factory=dict)  # the step in which each table changed last
    said: Mapping[str, Change] | None = None
    error: float | None = None
    missed: int = 0  # steps that changed a table of which no change was expected
    announced: Announced = field(default_factory=dict)
    since: int = 0  # steps before the sources that announce something began

    def next(self) -> dict[str, Change]:
        """The rows of each table that the next step is expected to change."""
        if self.said is not None:
            return _some(self.said)
        lately = {t: next_of(self.history[t]) for t, step in self.last.items() if self._is_recent(step)}
        return lately | self.from_sources()

    def from_sources(self) -> dict[str, Change]:
        """What the sources announce together; each of them makes steps of its own, so the largest counts."""
        found: dict[str, Change] = {}
        for changes in self.announced.values():
            for table, change in _some(changes).items():
                found[table] = max(change, found.get(table, change), key=lambda one: one.rows)
        return found

    def announcing(self, source: str, changes: Mapping[str, Change] | None) -> Prediction:
        """The prediction after a source has announced its next batch, or its end (None)."""
        others = {name: said for name, said in self.announced.items() if name != source}
        announced = others if changes is None else {**others, source: dict(changes)}
        return replace(self, announced=announced, since=self.since if self.announced.keys() & announced else self.steps)

    def after(self, came: Mapping[str, Change]) -> Prediction:
        """The prediction after a step."""
        came = _some(came)
        expected = self.next()
        history = dict(self.history)
        for table, change in came.items():
            history[table] = (*history.get(table, ()), change)[-REMEMBERED:]
        known = self.said is not None or bool(self.announced) or self.steps > 0
        return replace(
            self,
            history=history,
            steps=self.steps + 1,
            last={**self.last, **dict.fromkeys(came, self.steps + 1)},
            error=self._error(expected, came) if known else self.error,
            missed=self.missed + (known and not came.keys() <= expected.keys()),
        )

    def _is_recent(self, step: int) -> bool:
        """Whether a table that changed in a step is expected to go on."""
        return self.steps - step < _LATELY and (not self.announced or step > self.since)

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
            "said": None if self.said is None else _pairs(self.said),
            "error": self.error,
            "missed": self.missed,
            "announced": {source: _pairs(changes) for source, changes in self.announced.items()},
            "since": self.since,
        }

    @classmethod
    @from_log("what is expected of tables")
    def from_json(cls, data: Mapping[str, Any]) -> Prediction:
        if not data:
            return cls()
        said = data["said"]
        return cls(
            {table: tuple(Change(*pair) for pair in changes) for table, changes in data["history"].items()},
            data["steps"],
            data["last"],
            None if said is None else _changes(said),
            data["error"],
            data["missed"],
            {source: _changes(pairs) for source, pairs in data.get("announced", {}).items()},
            data.get("since", 0),
        )


def _some(changes: Mapping[str, Change]) -> dict[str, Change]:
    return {table: change for table, change in changes.items() if change.rows}


def _pairs(changes: Mapping[str, Change]) -> dict[str, list[float]]:
    return {table: [change.inserted, change.deleted] for table, change in changes.items()}


def _changes(pairs: Mapping[str, Any]) -> dict[str, Change]:
    return {table: Change(*pair) for table, pair in pairs.items()}
