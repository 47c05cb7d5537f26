"""EXPLAIN: from a planned view and the state as of the last step to the report of its kernel's family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import TYPE_CHECKING

import numpy as np

from headrace.engine import recompute_report
from headrace.engine.definition import Definition, PlannedView
from headrace.engine.reader import Reader
from headrace.engine.recompute import Recomputed
from headrace.engine.watermarks import is_final
from headrace.explain.report import Report, Size, Subject
from headrace.factorized import report as factorized_report
from headrace.factorized.bucket import part_name
from headrace.factorized.join_view import JoinView
from headrace.factorized.planner import Planned, stop_proposal
from headrace.operators import report as operators_report
from headrace.operators.alive import alive
from headrace.operators.kernel import ViewKernel
from headrace.operators.tree_view import TreeView
from headrace.relation.arrangement import counts
from headrace.relation.schema import TableSchema
from headrace.runtime.program import why_catalyst
from headrace.thrifty.strategy import FOREIGN_KEY, ONE_TABLE
from headrace.window import report as window_report
from headrace.window.window_view import WindowView

if TYPE_CHECKING:
    from headrace.engine.access import Access


@dataclass(frozen=True)
class Known:
    """What a report may be made of, besides the kernel."""

    subject: Subject
    definition: Definition
    planned: Planned | None  # of a view over a join
    reader: Reader
    schemas: Mapping[str, TableSchema]


def explain(access: Access, name: str, view: PlannedView) -> Report:
    """Report on a view, moments or a window join as of the last step."""
    return access.state.read(lambda reader: report_of(view.kernel, known(name, view, reader, access.catalogue.schemas)))


def known(name: str, view: PlannedView, reader: Reader, schemas: Mapping[str, TableSchema]) -> Known:
    """What is known of a view at the commit of a reader."""
    subject = Subject(
        name=name,
        sql=view.definition.sql,
        strategy=str(view.definition.chosen.get("strategy") or ONE_TABLE),
        why=str(view.definition.chosen.get("why", "")),
        buckets=reader.buckets,
        kind=view.definition.kind,
        also_kept=_closing(name, view, reader),
        evaluated=_evaluated(view.kernel),
        sizes={part: _size(name, part, reader) for part in view.kernel.arrangements},
        rows={table: reader.rows(table) for table in schemas},
        last_step=reader.summary,
    )
    return Known(subject, view.definition, view.planned, reader, schemas)


@singledispatch
def report_of(kernel: ViewKernel, known: Known) -> Report:
    """The report of a kernel's family."""
    raise NotImplementedError(f"no report on a view kept by {type(kernel).__name__}")


@report_of.register
def _(kernel: TreeView, known: Known) -> Report:
    if known.subject.strategy != FOREIGN_KEY:
        return operators_report.report(kernel, known.subject)
    rows = {part: _rows_in(known.subject.name, part, known.reader) for part in kernel.arrangements}
    extra = {number: {"alive": found} for number, found in alive(kernel, rows).items()}
    return operators_report.report(kernel, known.subject, extra=extra)


@report_of.register
def _(kernel: JoinView, known: Known) -> Report:
    assert known.planned is not None
    subject, chosen, plan = known.subject, known.definition.chosen, known.planned.plan
    # The reasons are those of the day on which the plan was made; what is known has changed since.
    stages = tuple(replace(s, why=why) for s, why in zip(plan.stages, chosen["stages_why"], strict=True))
    planned = replace(known.planned, order_why=chosen["order_why"], plan=replace(plan, stages=stages))
    groups = {i: known.reader.live(subject.name, part_name(i, 0)) for i in range(len(plan.views))}
    rows = {source.name: known.reader.rows(source.table) for source in kernel.join.sources}
    proposal = stop_proposal(plan, groups, rows) if subject.kind != "view" else ""
    return factorized_report.report(planned, kernel.algebra, subject, proposal=proposal)


@report_of.register
def _(kernel: Recomputed, known: Known) -> Report:
    return recompute_report.report(kernel, known.subject, known.definition.chosen)


@report_of.register
def _(kernel: WindowView, known: Known) -> Report:
    return window_report.report(
        kernel,
        known.subject,
        {part: known.reader.runs(known.subject.name, part) for part in kernel.arrangements},
    )


def _size(view: str, part: str, reader: Reader) -> Size:
    states = reader.states(view, part).values()
    runs = [run for state in states for run in state.runs]
    return Size(
        runs=len(runs),
        entries=sum(run.rows for run in runs),
        bytes=sum(run.bytes for run in runs),
        live=sum(state.live for state in states),
        most_runs=max((len(state.runs) for state in states), default=0),
    )


def _closing(name: str, view: PlannedView, reader: Reader) -> str:
    """Say of a view whose windows close that they do."""
    if not is_final(view):
        return ""
    return f"windows that are over by the watermark leave the state, and {reader.final(name):,} groups have"


def _rows_in(view: str, part: str, reader: Reader) -> int:
    """How many rows the entries of an arrangement stand for: the sum of all counts, over runs as they are."""
    total = 0
    for run in reader.runs(view, part):
        run.check(np.arange(run.rows))
        total += int(counts(run.payload).sum())
    return total


def _evaluated(kernel: ViewKernel) -> tuple[str, str]:
    reason = next(filter(None, map(why_catalyst, kernel.sides)), None)
    if reason is None:
        return "the kernels on columns", "every expression is one whose result is known to equal Spark's"
    return "Catalyst", f"it has {reason}"
