"""A report: what EXPLAIN says of a view, as values.

Strategies differ in what there is to say, not in how it is shown. So each builds a report out of the few kinds of parts
that are here, and one module writes text (`text`), one draws (`drawing`) and one method gives JSON (`to_dict`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.errors import SchemaError
from headrace.explain import drawing, text
from headrace.explain.graph import Graph
from headrace.explain.parts import Fact, Part, Section, Table

THEORY = "theory"
"""The heading of the last section: query classes, formulas and counters, for whoever asks why it is right."""


@dataclass(frozen=True)
class Size:
    """What is stored of an arrangement, in all buckets."""

    runs: int = 0
    entries: int = 0
    bytes: int = 0
    live: int = 0  # entries that are there after all runs are added up


@dataclass(frozen=True)
class Arrangement:
    """One arrangement of a view: whose it is, what it maps to what, why it is kept, and its size."""

    owner: str  # the operator or view that keeps it; empty where there is one only
    name: str
    keys: str
    payload: str
    why: str
    runs: int
    entries: int
    bytes: int

    @classmethod
    def of(cls, owner: str, name: str, keys: str, payload: str, why: str, size: Size) -> Arrangement:
        """An arrangement of this size."""
        return cls(owner, name, keys, payload, why, size.runs, size.entries, size.bytes)


@dataclass(frozen=True)
class Subject:
    """What a report is about: all that is known of a view besides its plan, whatever its strategy."""

    name: str
    sql: str
    strategy: str
    why: str  # this strategy
    buckets: int
    kind: str = "view"  # view | covariance | model | window join
    also_kept: str = ""  # what must be added to what is kept
    evaluated: tuple[str, str] = ("", "")  # what evaluates expressions over rows, and why
    sizes: Mapping[str, Size] = field(default_factory=dict)  # by arrangement
    rows: Mapping[str, int] = field(default_factory=dict)  # of each table, now
    last_step: Mapping[str, Any] = field(default_factory=dict)  # its summary; empty if there was none

    def size(self, part: str) -> Size:
        """The size of an arrangement; nothing if it was never written."""
        return self.sizes.get(part, Size())


@dataclass(frozen=True)
class Report:
    """How a view is kept, why so, and what it costs.

    `str()` is for people, `to_dict()` for programs, `to_svg()` for pages. What only one strategy knows of (operators,
    views of a tree, sources of a join) is in `values`, and `report["operators"]` is short for it.
    """

    name: str
    kind: str
    sql: str
    strategy: str
    title: str
    kept: str  # in plain words, as are the next two
    step: str
    why: str
    buckets: int
    arrangements: tuple[Arrangement, ...]
    sections: tuple[Section, ...]
    graph: Graph
    values: Mapping[str, Any]
    last_step: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        subject: Subject,
        *,
        how: str,
        kept: str,
        step: str,
        arrangements: Sequence[Arrangement],
        sections: Sequence[Section],
        graph: Graph,
        values: Mapping[str, Any],
    ) -> Report:
        """Report on a subject.

        Parameters
        ----------
        how : the view is kept, in a few words; they go on after its name.
        values : what JSON can hold, or frozen dataclasses of it.
        """
        return cls(
            name=subject.name,
            kind=subject.kind,
            sql=subject.sql,
            strategy=subject.strategy,
            title=f"{subject.kind} {subject.name}: {how}",
            kept=f"{kept}; {subject.also_kept}" if subject.also_kept else kept,
            step=step,
            why=subject.why,
            buckets=subject.buckets,
            arrangements=tuple(arrangements),
            sections=tuple(section for section in sections if section.parts),
            graph=graph,
            values=values,
            last_step={key: value for key, value in subject.last_step.items() if key != "operators"},
        )

    @property
    def state_bytes(self) -> int:
        """The size of all that is kept."""
        return sum(arrangement.bytes for arrangement in self.arrangements)

    def __getitem__(self, key: str) -> Any:
        """One of the values that only this strategy has."""
        if key not in self.values:
            raise SchemaError(
                f"The report on {self.name} says nothing of {key!r}.", way_out=f"It has {', '.join(self.values)}."
            )
        return self.values[key]

    def section(self, title: str) -> Section:
        """The section with this heading; one without parts if there is none."""
        return next((section for section in self.sections if section.title == title), Section(title, ()))

    def __str__(self) -> str:
        return text.to_text(self)

    def to_svg(self) -> str:
        """The plan as a drawing, for a page or a file of its own."""
        return drawing.to_svg(self.graph, [self.title, self.kept])

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values for JSON."""
        found: dict[str, Any] = json.loads(json.dumps(asdict(self), default=str))
        return found | {"state_bytes": self.state_bytes}


def state(arrangements: Sequence[Arrangement]) -> Table:
    """All arrangements with their sizes."""
    return Table(
        ("arrangement", "entries", "runs", "bytes", "holds"),
        tuple(
            (f"{a.owner} {a.name}".strip(), a.entries, a.runs, a.bytes, f"{a.keys} -> {a.payload}")
            for a in arrangements
        ),
    )


def last_step(summary: Mapping[str, Any], *more: Part) -> Section:
    """What the last step did, and where it ran; nothing if there was none."""
    if not summary:
        return Section("last step", ())
    place = "in the driver" if summary.get("ran") == "driver" else "as a Spark job"
    done = Fact("did", str(summary.get("text", "")))
    return Section("last step", (done, Fact("ran", f"{place}: {summary.get('why', '')}"), *more))
