"""EXPLAIN: gathers what is known of a view as of the last step, from which the view's strategy makes a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.engine.definition import ModelRequest, PlannedView
from headrace.engine.memory_report import memory_section
from headrace.engine.reader import Reader
from headrace.engine.sharing_report import shared_section, views_section
from headrace.explain.parts import Fact, Section
from headrace.explain.report import Report, Size, Subject
from headrace.operators.kernel import ViewKernel
from headrace.relation.schema import TableSchema
from headrace.runtime.program import why_catalyst

if TYPE_CHECKING:
    from headrace.engine.access import Access


@dataclass(frozen=True)
class Known:
    """All that a report is made of, besides the plan."""

    subject: Subject
    reader: Reader
    schemas: Mapping[str, TableSchema]


def explain(access: Access, name: str, view: PlannedView) -> Report:
    """Report on a view, moments or a window join as of the last step."""
    from headrace.engine.strategies import strategy_of

    strategy, schemas = strategy_of(view), access.catalogue.schemas
    fresh = view.definition.freshness

    def made(reader: Reader) -> Report:
        report = strategy.explain(view, known(name, view, reader, schemas))
        shared = shared_section(view, access.catalogue, reader)
        if shared.parts:
            report = replace(report, sections=(shared, *report.sections))
        views = views_section(name, view, access.catalogue)
        if views.parts:
            report = replace(report, sections=(views, *report.sections))
        memory = memory_section(name, view, access.catalogue, reader)
        if memory.parts:
            report = replace(report, sections=(memory, *report.sections))
        learned = _learned(view)
        if learned is not None:
            report = replace(report, sections=(learned, *report.sections))
        if fresh is None:
            return report
        from headrace.engine.freshness_report import freshness_section

        section, values = freshness_section(name, view, fresh, reader)
        return replace(report, sections=(section, *report.sections), values={**report.values, "freshness": values})

    return access.state.read(made)


def known(name: str, view: PlannedView, reader: Reader, schemas: Mapping[str, TableSchema]) -> Known:
    """What is known of a view at the commit of a reader."""
    subject = Subject(
        name=name,
        sql=view.definition.sql,
        strategy=view.definition.strategy,
        why=view.definition.why,
        buckets=reader.buckets,
        kind=view.definition.kind,
        also_kept=_closing(name, view, reader),
        evaluated=_evaluated(view.kernel),
        sizes={part: _size(name, part, reader) for part in view.kernel.arrangements},
        rows={table: reader.rows(table) for table in schemas},
        last_step=reader.summary,
    )
    return Known(subject, reader, schemas)


def _learned(view: PlannedView) -> Section | None:
    """What a model learns from the payload that is kept; None for what is no model."""
    request = view.definition.request
    if not isinstance(request, ModelRequest):
        return None
    from headrace.learn.registry import model_of

    model = model_of(request.model)
    return Section("model", (Fact("learns", f"{model.says()}; it is fitted when it is read, from the answer alone"),))


def _size(view: str, part: str, reader: Reader) -> Size:
    states = reader.states(view, part).values()
    runs = [run for state in states for run in state.runs]
    return Size(
        runs=len(runs),
        entries=sum(run.rows for run in runs),
        bytes=sum(run.bytes for run in runs),
        live=sum(state.live for state in states),
    )


def _closing(name: str, view: PlannedView, reader: Reader) -> str:
    """The sentence of a report that says how a view's windows close; empty for other views."""
    if not view.is_final:
        return ""
    return f"windows that are over by the watermark leave the state, and {reader.final(name):,} groups have"


def _evaluated(kernel: ViewKernel) -> tuple[str, str]:
    reason = next(filter(None, map(why_catalyst, kernel.sides)), None)
    if reason is None:
        return "the kernels on columns", "every expression is one whose result is known to equal Spark's"
    return "Catalyst", f"it has {reason}"
