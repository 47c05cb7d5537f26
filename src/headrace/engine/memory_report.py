"""What is said of the memory budget: in the status of an engine, and in EXPLAIN of a view."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from headrace.engine.catalogue import Catalogue
from headrace.engine.definition import PlannedView
from headrace.engine.idleness import Activity
from headrace.engine.reader import Reader
from headrace.engine.state_budget import why_never
from headrace.explain.parts import Fact, Section, Table
from headrace.operators.dropping import Holding, holdings, needed
from headrace.operators.tree_view import TreeView
from headrace.relation.duration import Duration
from headrace.thrifty.cost import time_text
from headrace.thrifty.keep.change import Change
from headrace.thrifty.keep.prediction import Prediction
from headrace.thrifty.keep.sizes import size_text

_SIDES = ("left rows", "right rows")


def memory_status(catalogue: Catalogue, reader: Reader) -> dict[str, Any]:
    """The budget, what is kept and dropped, what the next step is expected to bring, and what it will cost."""
    told, prediction = reader.memory, Prediction.from_json(reader.memory.get("prediction", {}))
    dropped, kept, budget = list(_dropped(catalogue, reader)), kept_bytes(catalogue, reader), told.get("budget")
    over = 0 if budget is None else max(0, kept - budget)
    return {
        "budget": budget,
        "kept_bytes": kept,
        "over_bytes": over,
        "over_because": list(_never_dropped(catalogue, reader)) if over else [],
        "dropped_bytes": sum(one["bytes"] for one in dropped),
        "dropped": dropped,
        "expected": _pairs(prediction.next()),
        "expected_by": _expected_by(prediction),
        "announced": {source: _pairs(changes) for source, changes in prediction.announced.items()},
        "idle": sorted(Activity.from_json(told).idle),
        "prediction_error": prediction.error,
        "unexpected_steps": prediction.missed,
        "next_step_seconds": told.get("next_step"),
        "next_step_seconds_if_all_were_kept": told.get("all_kept"),
    }


def _never_dropped(catalogue: Catalogue, reader: Reader) -> Iterator[dict[str, Any]]:
    """The views and shared subplans that keep all of their state whatever the budget."""
    for name, kernel in _kernels(catalogue).items():
        why = _why_all(name, catalogue, reader)
        size = reader.bytes(name, (part for one in holdings(kernel) for part in one.parts))
        if why is not None and size:
            yield {"view": name, "bytes": size, "why": why}


def _why_all(name: str, catalogue: Catalogue, reader: Reader) -> str | None:
    """Why a view, or a shared subplan, drops nothing; None if it may."""
    if name in catalogue.views:
        return why_never(catalogue.views[name], catalogue, is_idle=name in Activity.from_json(reader.memory).idle)
    return "all views that read it have goals, so changes wait for it" if catalogue.shared_waits(name) else None


def _pairs(changes: Mapping[str, Change]) -> dict[str, list[float]]:
    return {table: [change.inserted, change.deleted] for table, change in changes.items()}


def _expected_by(prediction: Prediction) -> str:
    if prediction.said is not None:
        return "user"
    return "source" if prediction.from_sources() else "history"


def kept_bytes(catalogue: Catalogue, reader: Reader) -> int:
    """The bytes of what operators keep, besides answers; the budget is for these."""
    return sum(
        reader.bytes(name, (part for one in holdings(kernel) for part in one.parts))
        for name, kernel in _kernels(catalogue).items()
    )


def memory_section(name: str, view: PlannedView, catalogue: Catalogue, reader: Reader) -> Section:
    """What EXPLAIN says of the arrangements of a view that may drop some; nothing if it keeps all in any case."""
    budget, waits = reader.memory.get("budget"), view.definition.idle_after
    unkept = reader.unkept.get(name, {})
    if (budget is None and not unkept and waits is None) or not isinstance(view.kernel, TreeView):
        return Section("memory", ())
    is_idle = name in Activity.from_json(reader.memory).idle
    never = why_never(view, catalogue, is_idle=is_idle)
    own = [one for one in holdings(view.kernel) if not set(one.parts).isdisjoint(unkept)]
    prediction = Prediction.from_json(reader.memory.get("prediction", {}))
    read = needed(view.kernel, prediction.next() or (() if is_idle else view.tables))
    rows = tuple((*_row(one, unkept), _why(one, read, unkept, budget)) for one in own)
    limit = "there is no budget now" if budget is None else f"{size_text(budget)} for all views and subplans"
    facts = [Fact("budget", f"{limit}; {size_text(kept_bytes(catalogue, reader))} are kept")]
    if waits is not None:
        facts.append(Fact("idle after", _idle_words(waits, is_idle)))
    facts.append(Fact("expected", expected_words(prediction, is_idle=is_idle)))
    if never is not None:
        facts.append(Fact("drops", f"nothing: {never}"))
    elif not rows:
        facts.append(Fact("drops", "nothing: all that it keeps fits, and the next change needs it"))
    else:
        facts.append(Fact("next step", _cost_words(reader)))
        again = "what is dropped is made again from the tables, before a step that looks into it"
        facts.append(Fact("dropped", f"{again}; or the step computes the answer anew, if that costs less"))
        return Section("memory", (*facts, Table(("dropped", "entries", "bytes", "why"), rows)))
    return Section("memory", tuple(facts))


def _idle_words(waits: Duration, is_idle: bool) -> str:
    if is_idle:
        return f"{waits} without rows: it is idle now, and keeps only what the expected change needs"
    return f"{waits} without rows: then it keeps only what the expected change needs"


def expected_words(prediction: Prediction, *, is_idle: bool) -> str:
    """Which changes are expected next, by whom, and how far off that was."""
    found = prediction.next()
    if not found and is_idle:
        return "no change"
    if not found:
        return "a little of every table, because nothing is known yet"
    parts = [f"{_all_words(own)}, {by}" for by, own in _by_sayer(prediction, found)]
    error = "" if prediction.error is None else f"; expectations were off by {prediction.error:.0%} on average"
    return f"{'; '.join(parts)}{error}"


def _by_sayer(prediction: Prediction, found: Mapping[str, Change]) -> Iterator[tuple[str, Mapping[str, Change]]]:
    """The expected changes, by who says that they come."""
    if prediction.said is not None:
        yield "as the user says", found
        return
    fed = prediction.from_sources()
    if fed:
        names = [name for name, said in prediction.announced.items() if not found.keys().isdisjoint(said)]
        yield _sources_words(names), {table: found[table] for table in fed}
    if others := {table: change for table, change in found.items() if table not in fed}:
        yield "from what has come lately", others


def _sources_words(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"as the source {names[0]} announces"
    return f"as the sources {', '.join(names[:-1])} and {names[-1]} announce"


def _all_words(changes: Mapping[str, Change]) -> str:
    return ", ".join(f"{_rows_words(change)} of {table}" for table, change in changes.items())


def _rows_words(change: Change) -> str:
    deleted = f" and {change.deleted:,.0f} deleted" if change.deleted else ""
    return f"{change.inserted:,.0f} rows{deleted}"


def _cost_words(reader: Reader) -> str:
    cost, least = reader.memory.get("next_step"), reader.memory.get("all_kept")
    if cost is None or least is None:
        return "not estimated yet"
    return f"about {time_text(cost)} of work for all views, {time_text(least)} if everything were kept"


def _row(one: Holding, unkept: Any) -> tuple[str, int, int]:
    sizes = [unkept[part] for part in one.parts if part in unkept]
    return f"[{one.number}] {_what(one)}", sum(s[0] for s in sizes), sum(s[1] for s in sizes)


def _why(one: Holding, read: Collection[str], unkept: Any, budget: int | None) -> str:
    if set(one.parts).isdisjoint(read):
        return "the expected change does not look into it"
    if budget is not None and _row(one, unkept)[2] > budget:
        return "it is larger than the budget"
    return "other state saves more, or no change has needed it since it was dropped"


def _what(one: Holding) -> str:
    return "groups and values" if one.side is None else _SIDES[one.side]


def _kernels(catalogue: Catalogue) -> dict[str, TreeView]:
    views = {name: view.kernel for name, view in catalogue.views.items() if isinstance(view.kernel, TreeView)}
    return views | {name: shared.kernel for name, shared in catalogue.subplans.items()}


def _dropped(catalogue: Catalogue, reader: Reader) -> Iterator[dict[str, Any]]:
    for name, kernel in _kernels(catalogue).items():
        unkept = reader.unkept.get(name, {})
        for one in holdings(kernel):
            if not set(one.parts).isdisjoint(unkept):
                _, entries, size = _row(one, unkept)
                yield {"view": name, "operator": one.number, "what": _what(one), "entries": entries, "bytes": size}
