"""`headrace status`: what is kept at a location, how much of it, and whether it is sound."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.open_engine import looked
from headrace.cli.screen import Json, count, grid, guarded, out, print_json, working

if TYPE_CHECKING:
    from headrace import Engine
    from headrace.engine.looking import Look

SQL_WIDTH = 60


@guarded
def status(
    location: Annotated[Path, typer.Argument(help="Folder of the state, as given to `headrace run --location`.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Also read all state and check it; exit code 1 on damage.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the tables, views and sources at a location, their rows, and the last step."""
    found, problems = looked(location, lambda engine: (engine.status(), _problems(engine) if verify else None))
    if as_json:
        print_json(found if problems is None else {**found, "problems": problems})
    else:
        _show(found)
        _show_problems(problems)
    if problems:
        raise typer.Exit(1)


def _problems(engine: Look | Engine) -> list[str]:
    with working("Checking the state"):
        return engine.verify()


def _show(found: dict[str, Any]) -> None:
    from rich.text import Text

    last = found.get("step", 0)
    size = f"{found.get('state_bytes', 0) / 1e6:,.1f} MB of state"
    out().print(Text(f"{found['location']}: step {last}, {size}"), soft_wrap=True)
    if summary := found.get("last_step"):
        out().print(Text(summary["text"]), soft_wrap=True)
    quarantined, late = found.get("quarantined") or {}, found.get("late") or {}
    in_time = any("watermark" in table for table in found["tables"])
    tables = grid("table", ">rows", "key", ">quarantined", *(("watermark", ">late") if in_time else ()))
    for table in found["tables"]:
        name, key = table["name"], table.get("key") or ()
        key_text = key if isinstance(key, str) else ", ".join(key)
        marked = [table.get("watermark", {}).get("at") or "-", f"{late.get(name, 0):,}"] if in_time else []
        tables.add_row(name, f"{table['rows']:,}", key_text or "-", f"{quarantined.get(name, 0):,}", *marked)
    views = grid("view", ">rows", "query")
    for view in found["views"]:
        sql = " ".join(view["sql"].split())
        shown = sql if len(sql) <= SQL_WIDTH else sql[: SQL_WIDTH - 3] + "..."
        views.add_row(view["name"], count(view["rows"]), Text(shown))
    with_goals = [view for view in found["views"] if "goal" in view]
    goals = grid("view", "goal", ">lag, s", ">waiting rows", ">triggers", ">met", ">missed", ">CPU, s")
    for view in with_goals:
        numbers = [f"{view['lag_seconds']:,.1f}", *(f"{view[name]:,}" for name in ("waiting_rows", "triggers"))]
        numbers += [f"{view['met']:,}", f"{view['missed']:,}", f"{view['cpu_seconds']:,.2f}"]
        goals.add_row(view["name"], Text(view["goal"]), *numbers)
    shared = grid("shared subplan", "views", ">joins", ">in place of", ">MB")
    for one in found.get("shared") or ():
        numbers = [f"{one['operators']:,}", f"{one['instead_of']:,}", f"{one['bytes'] / 1e6:,.1f}"]
        shared.add_row(one["name"], ", ".join(one["views"]), *numbers)
    memory = grid("dropped of", "operator", "what", ">entries", ">MB")
    for one in found.get("memory", {}).get("dropped") or ():
        numbers = [f"{one['entries']:,}", f"{one['bytes'] / 1e6:,.1f}"]
        memory.add_row(one["view"], f"[{one['operator']}]", one["what"], *numbers)
    sources = grid("source", ">last batch")
    for name, batch in (found.get("sources") or {}).items():
        sources.add_row(name, str(batch))
    for table in (tables, views, goals, shared, memory, sources):
        if table.row_count:
            out().print(table)
    if (memory_words := _memory(found.get("memory") or {})) is not None:
        out().print(Text(memory_words), soft_wrap=True)
    for warning in _over_budget(found.get("memory") or {}):
        out().print(Text(warning, style="yellow"), soft_wrap=True)
    for view in found["views"]:
        if problem := view.get("problem"):
            out().print(Text(f"{view['name']}: {problem}", style="red"), soft_wrap=True)
    if found.get("lost"):
        out().print(Text(found["lost"], style="yellow"), soft_wrap=True)
    for name, why in (found.get("failed") or {}).items():
        out().print(Text(f"{name} could not be opened: {why}", style="red"), soft_wrap=True)


def _memory(memory: dict[str, Any]) -> str | None:
    """What the memory budget and idle views have led to; None if there are none."""
    if memory.get("budget") is None and not memory.get("idle"):
        return None
    kept, dropped = (f"{memory[what] / 1e6:,.1f} MB" for what in ("kept_bytes", "dropped_bytes"))
    limit = "" if memory["budget"] is None else f" of a budget of {memory['budget'] / 1e6:,.1f} MB"
    said = f"memory: {kept} kept{limit}, {dropped} dropped"
    if memory["idle"]:
        said += f"; idle: {', '.join(memory['idle'])}"
    cost, least = memory["next_step_seconds"], memory["next_step_seconds_if_all_were_kept"]
    if cost is not None:
        said += f"; the next step takes about {cost:,.3f} s of work, {least:,.3f} s if everything were kept"
    if memory["expected"]:
        said += f"; expected next: {_expected(memory)}"
    error = memory["prediction_error"]
    return said if error is None else f"{said}; expectations were off by {error:.0%} on average"


def _expected(memory: dict[str, Any]) -> str:
    """Which rows are expected, and who says so."""
    parts = []
    for table, (inserted, deleted) in memory["expected"].items():
        gone = f" and {deleted:,.0f} deleted" if deleted else ""
        parts.append(f"{inserted:,.0f} rows{gone} of {table}")
    names = ", ".join(memory["announced"])
    by = {"user": "as the user says", "source": f"as announced by {names}", "history": "from what has come lately"}
    return f"{', '.join(parts)} ({by[memory['expected_by']]})"


def _over_budget(memory: dict[str, Any]) -> Iterator[str]:
    """A warning per view that keeps everything while the budget is exceeded."""
    from headrace.thrifty.keep.sizes import size_text

    if not memory.get("over_bytes"):
        return
    over = f"memory: over the budget by {size_text(memory['over_bytes'])}"
    for one in memory["over_because"]:
        yield f"{over}, because {one['view']} keeps all of its {size_text(one['bytes'])}: {one['why']}"
    if not memory["over_because"]:
        yield f"{over}, until the next step chooses what is kept"


def _show_problems(problems: list[str] | None) -> None:
    if problems == []:
        out().print("The state is sound.", style="green")
    for problem in problems or ():
        out().print(problem, style="red", markup=False, soft_wrap=True)
