"""The status of an engine as plain values, for `Engine.status` and `headrace status`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.engine import quarantine
from headrace.engine.catalogue import Catalogue
from headrace.engine.handles import Table
from headrace.engine.memory_report import memory_status
from headrace.engine.reader import Reader
from headrace.engine.sharing_report import shared_reports
from headrace.engine.stacking import readers_of
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.engine.engine import Handle


def status_of(catalogue: Catalogue, reader: Reader) -> dict[str, Any]:
    """Tables, views, sources and sizes."""
    return {
        "location": reader.shown,
        "step": reader.step,
        "version": reader.version,
        "buckets": reader.buckets,
        "state_bytes": reader.state_bytes,
        "owed_merges": reader.owed_merges,
        "tables": [_table(table) for table in catalogue.table_handles.values()],
        "views": [_view(view, catalogue) for view in catalogue.handles.values()],
        "shared": [asdict(one) for one in shared_reports(catalogue, reader)],
        "unmerged": reader.unmerged,
        "memory": memory_status(catalogue, reader),
        "sources": reader.sources,
        "quarantined": _numbers(catalogue, reader.quarantine),
        "late": _numbers(catalogue, reader.late),
        "last_step": reader.summary,
    }


def _numbers(catalogue: Catalogue, aside: Mapping[str, Sequence[Path]]) -> dict[str, int]:
    """How many rows of each table are set aside."""
    known = catalogue.schemas  # a read-only engine may not know the latest tables
    return {table: quarantine.count(files) for table, files in aside.items() if table in known}


def _table(table: Table) -> dict[str, Any]:
    found: dict[str, Any] = {"name": table.name, "rows": table.rows, "key": list(table.key)}
    if (declared := table.schema.watermark) is not None:
        at = None if table.watermark is None else table.watermark.isoformat()
        found["watermark"] = {"column": declared.column, "delay": str(declared.delay), "at": at}
    return found


def _view(view: Handle, catalogue: Catalogue) -> dict[str, Any]:
    try:
        found = {"name": view.name, "rows": view.rows, "sql": view.sql}
    except HeadraceError as error:  # a sum that overflowed must not hide the state of everything else
        found = {"name": view.name, "rows": None, "sql": view.sql, "problem": error.what}
    read = {"reads": list(view.planned.definition.views), "read_by": readers_of(view.name, catalogue.views)}
    found |= {what: names for what, names in read.items() if names}
    if (waits := view.planned.definition.idle_after) is not None:
        found["idle_after"] = str(waits)
    return found | _freshness(view)


def _freshness(view: Handle) -> dict[str, Any]:
    """How fresh a view with a goal has to be, how fresh it is, and what that took."""
    if view.goal is None:
        return {}
    progress = view.progress
    found: dict[str, Any] = {
        "goal": str(view.goal),
        "lag_seconds": view.lag.total_seconds(),
        "as_of": view.as_of,
        "waiting_rows": progress.rows,
        "triggers": progress.triggers,
        "met": progress.met,
        "missed": progress.missed,
        "cpu_seconds": progress.cpu,
    }
    return found | ({"problem": progress.failed} if progress.failed else {})
