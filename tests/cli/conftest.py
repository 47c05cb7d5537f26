"""An engine that keeps no views, but behaves towards the commands as the real one does."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from headrace.engine import looking
from headrace.errors import SchemaError


@dataclass
class FakeReport:
    text: str

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, str]:
        return {"strategy": "groups"}

    def to_svg(self) -> str:
        return "<svg/>"


@dataclass
class FakeView:
    name: str
    sql: str
    answer: pa.Table = field(default_factory=lambda: pa.table({"shop": ["a", None], "sales": [1, 2]}))

    @property
    def rows(self) -> int:
        return self.answer.num_rows

    def to_arrow(self) -> pa.Table:
        return self.answer

    def explain(self, *, cost: bool = False) -> Any:
        return FakeReport("groups by [shop]")


class FakeEngine:
    def __init__(self, location: str, spark: Any = None) -> None:
        Path(location).mkdir(parents=True, exist_ok=True)
        (Path(location) / "headrace.json").touch()
        self.location = location
        self.spark = spark
        self.tables: dict[str, Any] = {}
        self.views: dict[str, FakeView] = {}
        self.streams: dict[str, Any] = {}
        self.how: dict[str, dict[str, str]] = {}
        self.problems: list[str] = []
        self.calls: list[str] = []
        self.step = 0

    def explain(self) -> FakeReport:
        return FakeReport(f"{len(self.views)} view, nothing shared")

    def table(self, name: str, schema: str, key: Any = None, references: Any = None) -> Any:
        self.tables[name] = SimpleNamespace(name=name, schema=schema, key=key, references=references, rows=7)
        return self.tables[name]

    def view(
        self, name: str, sql: str, *, goal: object = None, idle_after: object = None, replace: bool = False
    ) -> FakeView:
        if name in self.views and self.views[name].sql != sql:
            if not replace:
                raise SchemaError(f"view {name} exists with another query", way_out="drop it")
            del self.views[name]
        return self.views.setdefault(name, FakeView(name, sql))

    def drop(self, name: str) -> None:
        del self.views[name]

    def stream(self, table: str, source: Any, name: str | None = None, **how: str) -> None:
        self.streams[table] = (source, name)
        self.how[table] = how

    def apply(self, changes: dict[str, pa.Table]) -> Any:
        self.step += 1
        return SimpleNamespace(number=self.step, seconds=0.1, ran="driver")

    def process_available(self) -> None:
        self.step += 1

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")

    def close(self) -> None:
        self.calls.append("close")

    def verify(self) -> list[str]:
        return self.problems

    def status(self) -> dict[str, Any]:
        return {
            "location": self.location,
            "step": self.step,
            "state_bytes": 1_500_000,
            "tables": [{"name": table.name, "rows": table.rows, "key": table.key} for table in self.tables.values()],
            "views": [{"name": view.name, "rows": view.rows, "sql": view.sql} for view in self.views.values()],
            "sources": {"sales": 3},
            "quarantined": {"sales": 2},
            "last_step": {"text": "step 9: 4 rows of sales"},
        }


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeEngine:
    """Have a fake engine opened, with Spark and without, and return it."""
    engine = FakeEngine(str(tmp_path / "shop.state"))
    package = sys.modules["headrace"]
    assert isinstance(package, ModuleType)
    monkeypatch.setattr(package, "connect", lambda location, **options: engine, raising=False)
    monkeypatch.setattr(looking, "Look", lambda location: closing(engine))
    return engine
