"""What has been unshared, as the engine remembers it: which views are kept apart, and what they run themselves.

Without this memory, the next view that comes would find the joins in common again, and put them back together. It lasts
as long as the goals that led to it: if one of the views gets another goal or is dropped, views are compared anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from headrace.relation.from_log import from_log

Operator = tuple[str, int]
"""An operator of a view: the name of the view, and the number of the operator in the view's own tree."""


@dataclass(frozen=True)
class Apart:
    """A subplan that was taken apart, and why.

    Parameters
    ----------
    parts : the operators that the subplan stood for, in the parts that do not share with each other.
    own : the operators that views run themselves although they could be shared.
    tables : the tables that the subplan joined.
    before, after : the estimated total work of the views concerned until a trigger; seconds.
    pace : how often the subplan had to be brought up to date until a trigger.
    strictest : the view whose goal forced that.
    paces : per view, how often its part has to be brought up to date.
    reached : views that come nearer to their goals by it, or reach them.
    """

    parts: tuple[tuple[Operator, ...], ...]
    own: tuple[Operator, ...]
    tables: tuple[str, ...]
    before: float
    after: float
    pace: int
    strictest: str
    paces: Mapping[str, int]
    reached: tuple[str, ...] = ()

    @property
    def views(self) -> tuple[str, ...]:
        """The views that shared the subplan."""
        return tuple(dict.fromkeys(view for part in self.parts for view, _ in part))

    def part_of(self, operators: Collection[Operator]) -> int | None:
        """The part that some operators of a view belong to; None if the subplan did not stand for any of them."""
        return next((i for i, part in enumerate(self.parts) if {*part} & {*operators}), None)

    def to_json(self) -> dict[str, Any]:
        """The values that the log keeps."""
        return asdict(self)

    @classmethod
    @from_log("what was taken apart")
    def from_json(cls, data: Mapping[str, Any]) -> Apart:
        """The same from values that the log has kept."""
        parts = tuple(tuple((view, number) for view, number in part) for part in data["parts"])
        own = tuple((view, number) for view, number in data["own"])
        lists = {name: tuple(data.get(name, ())) for name in ("tables", "reached")}
        return cls(**{**data, **lists, "parts": parts, "own": own})


def still_apart(found: Iterable[Apart], gone: Collection[str]) -> tuple[Apart, ...]:
    """What stays apart when some views are gone, or have another goal."""
    return tuple(one for one in found if not {*one.views} & {*gone})
