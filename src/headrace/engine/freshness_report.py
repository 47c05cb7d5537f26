"""What EXPLAIN says of a view with a goal, and the trade-off between fresh and cheap, as tables and as a picture."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.engine.definition import PlannedView
from headrace.engine.pacing import Learnt
from headrace.engine.reader import Reader
from headrace.errors import NotEnoughDataError
from headrace.explain import svg
from headrace.explain.parts import Fact, Part, Section, Table
from headrace.explain.svg import EDGE, FAINT, INK, MARGIN
from headrace.operators.tree_view import TreeView
from headrace.thrifty.cost import time_text
from headrace.thrifty.goal import Freshness
from headrace.thrifty.incrementability import PathIncrementability, Point, incrementability, tradeoff
from headrace.thrifty.schedule import LEARNING

_WIDTH, _HEIGHT, _LEFT = 520, 220, 60


def freshness_section(name: str, view: PlannedView, fresh: Freshness, reader: Reader) -> tuple[Section, dict[str, Any]]:
    """What a report says of how fresh a view is, and the same as values."""
    progress, known = reader.progress(name), learnt_of(name, reader)
    waiting = f"{progress.rows:,} changed rows have come since the last trigger, which was part of step {progress.step}"
    parts: list[Part] = [Fact("goal", str(fresh)), Fact("waiting", waiting)]
    parts += [Fact("problem", progress.failed)] if progress.failed else []
    said = f"{progress.triggers:,} so far, {progress.met:,} met the goal and {progress.missed:,} missed it"
    parts.append(Fact("triggers", f"{said}; {time_text(progress.cpu)} of CPU in all"))
    values: dict[str, Any] = {"goal": str(fresh), "paces": dict(progress.paces), "waiting_rows": progress.rows}
    if known is not None:
        values |= {"feasible": known.feasible, "final_seconds": known.estimated, "batch_seconds": known.batch}
        parts.append(Fact("estimate", _estimate(known)))
    if isinstance(view.kernel, TreeView):
        classes = {} if known is None else {one.path: one for one in incrementability(known.plan, progress.paces)}
        rows = tuple(
            (where, _said(progress.paces.get(path, 1)), _class(classes.get(path)))
            for path, where in _places(view.kernel, [] if known is None else known.below).items()
        )
        parts.append(Table(("changes wait", "flushes until the trigger", "incrementable"), rows))
    return Section("freshness", tuple(parts)), values


def learnt_of(name: str, reader: Reader) -> Learnt | None:
    """What is known of the triggers of a view."""
    data = reader.learnt(name)
    return None if data is None else Learnt.from_json(data)


def _estimate(known: Learnt) -> str:
    text = f"{time_text(known.estimated)} of work at the trigger, {time_text(known.batch)} if all of it were done then"
    if known.feasible:
        return text
    return f"{text}; the goal is out of reach: no paces are estimated to leave less, because of {_culprit(known)}"


def _culprit(known: Learnt) -> str:
    """The operator that keeps the final work up: the one that takes most rows at the trigger, however eager."""
    search = known.search
    eager, batch = search.cost(search.eager), search.cost(search.batch)
    again = max(eager.rows, key=lambda n: eager.rows[n] - batch.rows[n])
    if eager.rows[again] > 1.01 * batch.rows[again]:
        return f"[{again}], which takes rows again and again"
    return "what every flush costs, however few rows it has"


def _said(pace: int) -> str:
    return "of several sizes, to learn from" if pace == LEARNING else str(pace)


def _class(found: PathIncrementability | None) -> str:
    if found is None:
        return "not known before the first trigger"
    if found.operator is None:
        return found.kind
    return f"{found.kind}, because of [{found.operator}]"


def _places(kernel: TreeView, subplans: Collection[str]) -> dict[str, str]:
    """Where changes wait, in words; first those that wait for shared subplans."""
    out = {}
    for path in kernel.paths:
        tables = f"rows of {', '.join(path.tables)} " if path.tables else ""
        out[path.name] = f"{tables}before [{path.number}]"
    return {**{name: f"before shared subplan {name}" for name in subplans}, **out}


@dataclass(frozen=True)
class Tradeoff:
    """The estimated trade-off of a view, with what was measured at its last trigger.

    `str()` is a table, `to_dict()` is for programs, `to_svg()` and `save()` draw it.
    """

    view: str
    points: tuple[Point, ...]
    measured: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """The estimates and the measurement as plain values."""
        return {"view": self.view, "points": [point.to_dict() for point in self.points], "measured": self.measured}

    def __str__(self) -> str:
        lines = [f"{'final work':>10}  {'additional work':>15}  {'at the trigger':>14}  reached"]
        for point in self.points:
            reached = "yes" if point.feasible else f"no, {point.final:.2f}"
            latency = time_text(point.latency)
            lines.append(f"{point.share:>10.2f}  {point.additional:>14.0%}   {latency:>13}  {reached}")
        if self.measured:
            lines.append(
                f"measured at the last trigger: final work {self.measured['final']:.2f}, "
                f"additional work {self.measured['additional']:.0%}, {time_text(self.measured['seconds'])}"
            )
        return "\n".join(lines)

    def to_svg(self) -> str:
        """A picture: additional work over final work."""
        return svg.document(
            _LEFT + _WIDTH + 2 * MARGIN, _HEIGHT + 130, [(f"fresh or cheap: {self.view}", 16)], list(self._drawn())
        )

    def save(self, path: str | Path) -> None:
        """Write the picture to a file."""
        Path(path).write_text(self.to_svg(), encoding="utf-8")

    def _drawn(self) -> Iterator[str]:
        top, left = 60, MARGIN + _LEFT
        most = max([0.1, *(point.additional for point in self.points), self.measured.get("additional", 0.0)])
        reachable = [point for point in self.points if point.feasible]

        def x(final: float) -> float:
            return left + _WIDTH * min(1.0, final)

        def y(additional: float) -> float:
            return top + _HEIGHT * (1 - max(0.0, additional) / most)

        yield f'<path d="M{left} {top} V{top + _HEIGHT} H{left + _WIDTH}" fill="none" stroke="{EDGE}"/>'
        for share in (0.0, 0.5, 1.0):
            yield svg.text(x(share) - 8, top + _HEIGHT + 18, f"{share:g}", 12, FAINT)
            yield svg.text(MARGIN, y(share * most) + 4, f"+{share * most:.0%}", 12, FAINT)
        said = "work left at the trigger, as a share of all; up: additional work"
        yield svg.text(left, top + _HEIGHT + 38, said, 12, FAINT)
        line = " L".join(f"{x(point.final):.1f} {y(point.additional):.1f}" for point in reachable)
        if line:
            yield f'<path d="M{line}" fill="none" stroke="{INK}"/>'
        for point in reachable:
            yield f'<circle cx="{x(point.final):.1f}" cy="{y(point.additional):.1f}" r="4" fill="{INK}"/>'
            yield svg.text(x(point.final) + 6, y(point.additional) - 6, f"{point.share:g}", 12, INK)
        if self.measured:
            at = x(self.measured["final"]), y(self.measured["additional"])
            yield f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="6" fill="none" stroke="{INK}"/>'
            yield svg.text(at[0] + 9, at[1] + 14, "measured", 12, FAINT)


def incrementability_of(name: str, view: PlannedView, reader: Reader) -> list[PathIncrementability]:
    """The incrementability of the paths of a view, from what its triggers have shown."""
    return incrementability(_known(name, view, reader).plan, reader.progress(name).paces)


def _known(name: str, view: PlannedView, reader: Reader) -> Learnt:
    known = learnt_of(name, reader)
    if known is None or not isinstance(view.kernel, TreeView):
        raise NotEnoughDataError(
            f"view {name!r}: no trigger has shown yet what its paths cost",
            way_out="give it a goal that leaves a choice (FinalWork, or TargetLag with a trigger), and let one trigger "
            "pass; views that are factorized or recomputed, and models, have no paths to choose paces for",
        )
    return known


def tradeoff_of(name: str, view: PlannedView, reader: Reader) -> Tradeoff:
    """The trade-off of a view, from what its triggers have shown."""
    known = _known(name, view, reader)
    return Tradeoff(name, tuple(tradeoff(known.search)), dict(known.last))
