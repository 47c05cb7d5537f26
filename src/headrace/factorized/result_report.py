"""What EXPLAIN says of a factorized result: its size beside that of all rows, and what its class of query promises.

The promises are those of Theorem 26 of the F-IVM paper, for the query and for its reduct under the functional
dependencies of its tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headrace.explain.parts import Fact, Outline, Section
from headrace.explain.report import Report
from headrace.explain.words import counted, cut, listed
from headrace.factorized.planner import Planned
from headrace.plan.classes import classes
from headrace.plan.dependencies import Dependency
from headrace.plan.promise import Promise, changing, promise

_NAMED, _LONG = 3, 60


def with_result(
    report: Report, planned: Planned, entries: Mapping[int, int], rows: int, columns: int, *, distinct: bool = False
) -> Report:
    """Add to the report on a view tree what is known of the result that it holds.

    Parameters
    ----------
    entries : live entries of each view.
    rows, columns : of the result, if all of it were listed.
    distinct : whether equal rows are one, so that there may be fewer.
    """
    plan, alone, under = planned.plan, promise(planned.query), promise(planned.reduct)
    # Relations that never change ask for no work, so a class that only the others have promises cheap changes too.
    moving = promise(changing(planned.reduct, plan.static))
    update = moving if moving.kind == "q-hierarchical" else under
    kept = [(view, entries.get(i, 0)) for i, view in enumerate(plan.views) if view.kept and i != plan.root]
    total, values = sum(count for _, count in kept), sum(count * len(view.keys) for view, count in kept)
    times = rows * columns / values if values else 0.0
    most = "at most " if distinct else ""
    listing = f"{most}{rows * columns:,} values in a listing"
    smaller = f": {times:,.1f} times smaller" if times >= 1 and not distinct else ""
    facts = [
        Fact("rows", f"{most}{rows:,} of {counted(columns, 'column')}, listed when they are read and never stored"),
        Fact(
            "size",
            f"{counted(total, 'entry', 'entries')} with {values:,} values, instead of {listing}{smaller}",
        ),
        Fact("class", _classes(planned, alone, under) + _without_static(planned, update, under)),
        Fact("update", _update(update)),
        Fact("delay", f"{under.delay} between two rows: every value that is read completes a row"),
    ]
    depth = {0: 0}
    for number, level in enumerate(plan.listing):
        depth |= dict.fromkeys(level.below, depth.setdefault(number, 0) + 1)
    lists = [
        (depth[number], f"{cut(', '.join(level.variables), _LONG)} from {plan.views[level.view].name.split('[')[0]}")
        for number, level in enumerate(plan.listing)
    ]
    section = Section("result", (*facts, Fact("listed", "top down, level by level:"), Outline(tuple(lists))))
    said = {
        "rows": rows,
        "listing_values": rows * columns,
        "kept_values": values,
        "kept_entries": total,
        "classes": classes(planned.query),
        "classes_under_dependencies": classes(planned.reduct),
        "dependencies": [str(dependency) for dependency in planned.dependencies],
        "update": update.update,
        "update_without_dependencies": alone.update,
        "delay": under.delay,
        "filling": under.filling,
    }
    title = report.title.replace("a join kept as one tree of views", "the rows of a join kept as one tree of views")
    values_ = {**report.values, "result": said}
    return replace(report, title=title, sections=(section, *report.sections), values=values_)


def _classes(planned: Planned, alone: Promise, under: Promise) -> str:
    known = f"the query is {listed(classes(planned.query)) or 'cyclic'}"
    if not planned.dependencies:
        return known
    sigma = "; ".join(_short(dependency) for dependency in planned.dependencies)
    if under == alone:
        return f"{known}, with and without the dependencies {sigma}"
    return f"{known}; under the dependencies {sigma} it is {listed(classes(planned.reduct)) or 'cyclic'}"


def _without_static(planned: Planned, update: Promise, under: Promise) -> str:
    if update == under:
        return ""
    return f"; without {', '.join(sorted(planned.plan.static))}, which never change, it is {update.kind}"


def _short(dependency: Dependency) -> str:
    """A dependency, with columns counted where there are many: a key determines all of its table."""
    many = len(dependency.determines) > _NAMED
    right = f"{len(dependency.determines)} columns" if many else ", ".join(dependency.determines)
    return f"{', '.join(dependency.of)} -> {right}"


def _update(promised: Promise) -> str:
    if promised.kind == "q-hierarchical":
        return (
            "O(1) per changed row of N: each view up to the root changes in one entry, which is found by its whole key"
        )
    if promised.kind == "free-connex":
        return "O(N) per changed row of N: no view is larger than a table, and a change may match all of one"
    return "as much as matches: the class promises nothing, as a view may be larger than the tables that it joins"
