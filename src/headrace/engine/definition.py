"""What a user asked for and what became of it: a definition, and the planned view that follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.engine.recompute import Recomputed
from headrace.factorized.planner import Planned
from headrace.operators.kernel import ViewKernel
from headrace.operators.layout import ViewLayout
from headrace.sql.catalyst import AnalysedView
from headrace.window.window_view import WindowView


@dataclass(frozen=True)
class Definition:
    """What a user asked for, and what was chosen for it; the commit log keeps both."""

    kind: str  # view | covariance | model | window join
    sql: str
    asked: Mapping[str, Any] = field(default_factory=dict)
    chosen: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "sql": self.sql, "asked": dict(self.asked), "chosen": dict(self.chosen)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Definition:
        return cls(data.get("kind", "view"), data["sql"], data.get("asked", {}), data.get("chosen", {}))

    def same_request(self, other: Definition) -> bool:
        """Whether a user asks for the same thing again."""
        return (self.kind, self.sql, dict(self.asked)) == (other.kind, other.sql, dict(other.asked))


@dataclass(frozen=True)
class PlannedView:
    """A view that can be maintained: its definition with all choices made, its analysis and its kernel."""

    definition: Definition
    analysed: AnalysedView | None  # None of a window join, and where Spark runs a query as it stands
    kernel: ViewKernel
    layout: ViewLayout | None = None  # of a SQL view
    planned: Planned | None = None  # of a view over a join
    features: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that the view reads."""
        if isinstance(self.kernel, (Recomputed, WindowView)):
            return self.kernel.tables
        assert self.analysed is not None
        return self.analysed.plan.tables
