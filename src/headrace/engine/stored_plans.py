"""How Catalyst read each view, kept beside the state, so that looking at a location needs no Spark.

A view's plan follows from its definition, which the commit log has, but only Catalyst can follow from the SQL to the
plan. So an engine that has planned a view writes the plan to `plans/`. It is a copy that may be deleted at any time: it
is used only if everything that it was made from is still the same, and the next engine that writes makes it again.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from headrace import __version__
from headrace.engine.definition import (
    Answer,
    Definition,
    FeatureMoments,
    MatrixAnswer,
    MatrixChainRequest,
    ModelRequest,
    MomentsRequest,
    PlannedView,
    Request,
    ResultAnswer,
    SparkAnswer,
    SqlAnswer,
    SqlRequest,
    WindowAnswer,
    WindowJoinRequest,
)
from headrace.engine.plan_text import OtherPlanError, from_json, to_json
from headrace.engine.spark_needed import SparkNeeded
from headrace.engine.store import Store
from headrace.errors import StorageError
from headrace.relation import disk
from headrace.runtime.location import write_atomically

if TYPE_CHECKING:
    from headrace.factorized.planner import Planned
    from headrace.operators.kernel import ViewKernel
    from headrace.plan.view import ViewPlan
    from headrace.relation.types import SqlType
    from headrace.sql.catalyst import AnalysedView

_FORMAT = 2

_ANSWERS: dict[type[Request], tuple[type[Answer], ...]] = {
    SqlRequest: (SqlAnswer, ResultAnswer, SparkAnswer),
    MomentsRequest: (FeatureMoments,),
    ModelRequest: (FeatureMoments,),
    WindowJoinRequest: (WindowAnswer,),
    MatrixChainRequest: (MatrixAnswer,),
}


@dataclass(frozen=True)
class ReadBefore:
    """What Catalyst found in a query when the view was planned; it has the place of an `AnalysedView`."""

    plan: ViewPlan
    schema: tuple[tuple[str, SqlType, bool], ...]

    @property
    def catalyst(self) -> Any:
        """Catalyst's own expressions, which only Spark has."""
        raise SparkNeeded("Catalyst has to evaluate an expression of the query")


@dataclass(frozen=True)
class _Stored:
    """A planned view without its definition, which the commit log has, and without what only the JVM has."""

    kernel: ViewKernel
    tables: tuple[str, ...]
    answer: object
    factorization: Planned | None


def write(store: Store, name: str, view: PlannedView) -> None:
    """Keep the plan of a view, unless the same is there already."""
    digest, path = _digest(store, view.tables, view.definition), _path(store, name)
    if _read(path).get("digest") == digest:
        return
    plan = to_json(_Stored(view.kernel, view.tables, _without_jvm(view.answer), view.factorization))
    data = {"digest": digest, "tables": view.tables, "plan": plan}
    text = json.dumps(data | {"crc": _checksum(data)}, separators=(",", ":"))
    with suppress(StorageError, OSError):  # the view is there without it
        disk.DISK.make_folder(path.parent)
        write_atomically(path, text.encode(), fsync=False)


def remove(store: Store, name: str) -> None:
    """Forget the plan of a view that is gone."""
    with suppress(OSError):
        disk.DISK.remove(_path(store, name))


def read(store: Store, name: str, definition: Definition) -> PlannedView:
    """The plan of a view; raises SparkNeeded if there is none that fits its definition."""
    data = _read(_path(store, name))
    if not data:
        raise SparkNeeded(f"the plan of view {name} is not stored")
    try:
        if data["digest"] != _digest(store, data["tables"], definition):
            raise OtherPlanError("it belongs to another definition")
        stored = from_json(data["plan"])
        if not isinstance(stored.answer, _ANSWERS[type(definition.request)]):
            raise OtherPlanError("it answers another kind of request")
        kernel = stored.kernel.with_shifts(definition.shifts) if definition.shifts else stored.kernel
        return PlannedView(definition, kernel, stored.tables, stored.answer, stored.factorization)
    except (KeyError, TypeError, ValueError, AttributeError, OtherPlanError) as error:
        raise SparkNeeded(f"the stored plan of view {name} is of another version of it or of Headrace") from error


def _without_jvm(answer: Any) -> Any:
    if isinstance(answer, SqlAnswer | ResultAnswer | FeatureMoments):
        analysed = ReadBefore(answer.analysed.plan, answer.analysed.schema)
        return replace(answer, analysed=cast("AnalysedView", analysed))
    return answer


def _digest(store: Store, tables: Iterable[str], definition: Definition) -> str:
    """A fingerprint of all that a plan follows from."""
    settings, schemas = store.settings, {table: store.snapshot.tables[table] for table in tables}
    said = definition.to_json()
    del said["freshness"]  # how fresh a view is has no part in how it is kept
    if said["choice"] is not None:
        said["choice"]["shifts"] = {}  # they are put into the plan when it is read
    made_from = [_FORMAT, __version__, settings.seed, settings.buckets, settings.sql, schemas, said]
    return hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(disk.read(path))
    except (OSError, ValueError, RecursionError):
        return {}
    # What is damaged counts as not stored: it would answer another question.
    return found if isinstance(found, dict) and found.pop("crc", None) == _checksum(found) else {}


def _checksum(data: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(data, sort_keys=True).encode())


def _path(store: Store, name: str) -> Path:
    return store.location.root / "plans" / f"{name}.json"
