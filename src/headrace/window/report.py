"""The report on a window join: when its windows are answered, what is kept, and what came too late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headrace.explain.graph import Edge, Graph, Node
from headrace.explain.parts import Fact, Section
from headrace.explain.report import THEORY, Arrangement, Report, Subject, last_step, state
from headrace.explain.words import counted
from headrace.relation.duration import Duration
from headrace.relation.runset import AnyRun
from headrace.window.emitted import ANSWERS
from headrace.window.window_view import ESTIMATOR_STATE, LATE, WindowView

_HOLDS = {
    ANSWERS: ("answers", "(window)", "answer", "they are read from it"),
    LATE: ("late rows", "(row)", "count", "they are in no answer, and can be looked at"),
    ESTIMATOR_STATE: ("what was learned", "()", "rates, delays and errors", "estimates are made of it"),
}


def report(kernel: WindowView, subject: Subject, runs: Mapping[str, Sequence[AnyRun]]) -> Report:
    """Report on a window join.

    Parameters
    ----------
    runs : of each of its arrangements.
    """
    spec = kernel.spec
    length, slide, emit_after, horizon = (Duration(t) for t in (spec.length, spec.slide, spec.emit_after, spec.horizon))
    slides = "tumble" if spec.slide == spec.length else f"slide by {slide}"
    near = "" if spec.within is None else f"; rows meet that are at most {Duration(spec.within)} apart"
    rows = {part: sum(int(run.payload[0].sum()) for run in runs.get(part, ())) for part in (ANSWERS, LATE)}
    values = {
        "aggregate": str(spec.aggregate),
        "windows": f"of {length}, which {slides}{near}",
        "answered": f"{emit_after} after the start of a window",
        "complete": f"{horizon} after the end of a window; a row that is later is set aside",
        "estimator": kernel.estimator,
        "interval": kernel.interval,
        "revisions": kernel.revisions,
        "open_entries": sum(subject.size(part).live for part in kernel.matching.arrangements),
        "too_late": rows[LATE],
        "missed": kernel.restored(runs.get(ESTIMATOR_STATE, ()))[0].missed,
        "answers": rows[ANSWERS],
    }
    kept = [
        Arrangement.of(
            "", *_HOLDS.get(part, (part, "(window, key)", "sums", "rows to come meet it")), subject.size(part)
        )
        for part in kernel.arrangements
    ]
    size = sum(arrangement.bytes for arrangement in kept)
    estimated = (
        f"what has arrived, and by {kernel.estimator!r} what is still to come, with an interval that should hold "
        f"{kernel.interval:.0%} of the time"
    )
    missed = (
        f"{values['missed']:,} rows of windows that were complete already: time had passed in a step before. Rows that "
        "arrive together belong into one step"
    )
    return Report.of(
        replace(
            subject, why=subject.why or "it was asked for: windows are answered before all of their rows have come"
        ),
        how=f"{spec.aggregate} of {subject.sql}",
        kept=(
            f"{size:,} bytes: {values['open_entries']:,} entries of open windows, {counted(rows[ANSWERS], 'answer')}, "
            f"what was learned, {counted(rows[LATE], 'row')} that came too late"
        ),
        step="costs in proportion to the rows that arrive and the windows that are due",
        arrangements=kept,
        sections=[
            Section(
                "plan",
                (
                    Fact("windows", str(values["windows"])),
                    Fact("answered", f"{values['answered']}: {estimated}; told: {kernel.revisions}"),
                    Fact("complete", str(values["complete"])),
                    *((Fact("missed", missed),) if values["missed"] else ()),
                ),
            ),
            Section("state", (state(kept),)),
            last_step(subject.last_step),
            Section(
                THEORY,
                (
                    Fact(
                        "join",
                        "pairs of a window and key are the product of two sums, so they are counted and never listed",
                    ),
                ),
            ),
        ],
        graph=_graph(kernel, subject, size),
        values=values,
    )


def _graph(kernel: WindowView, subject: Subject, size: int) -> Graph:
    """Both tables, the open windows that their rows meet in, and the answers."""
    tables = dict.fromkeys(kernel.tables)
    return Graph(
        (
            Node("answers", "kept", 0, ("answers", str(kernel.spec.aggregate)), (kernel.revisions,)),
            Node("windows", "kept", 1, ("open windows", kernel.estimator), (f"{size:,} bytes kept",)),
            *(Node(f"table {t}", "table", 2, (t, counted(subject.rows.get(t, 0), "row"))) for t in tables),
        ),
        (Edge("answers", "windows"), *(Edge("windows", f"table {table}") for table in tables)),
    )
