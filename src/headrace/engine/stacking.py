"""Views that read views: which of them read which, in what order they are opened, and what a view offers to others.

A definition names the views that its query reads, each with a fingerprint of the query that it had then. So a location
that is opened again has the same plans, or says why not; and whatever would take a view from its readers is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headrace.engine.definition import SqlRequest
from headrace.errors import SchemaError, StorageError
from headrace.operators.kernel import ViewKernel
from headrace.operators.tree_view import TreeView

if TYPE_CHECKING:
    from headrace.engine.definition import Definition, PlannedView
    from headrace.engine.failed import FailedViews
    from headrace.sql.session import SqlSession

_NOT_SQL = "which is no table: its answer has methods of its own"
_FINAL = "whose windows close: what has left its state would be missing"


def fingerprint(definition: Definition) -> str:
    """A text that tells the query of a view, and those of the views that it reads, from all others."""
    said = json.dumps([definition.sql, sorted(definition.views.items())])
    return hashlib.blake2b(said.encode(), digest_size=16).hexdigest()


def offer(session: SqlSession, name: str, planned: PlannedView) -> None:
    """Let later queries read a view, or be told why they cannot."""
    from headrace.sql.session import KnownView  # here, so that whoever only looks at a location loads no Spark

    request = planned.definition.request
    if not isinstance(request, SqlRequest):
        session.register_unreadable(name, _NOT_SQL, "read the tables that it is made of")
    elif request.final:
        session.register_unreadable(name, _FINAL, "make a second view without final=True, and read that")
    else:
        schema = planned.analysed.schema if planned.analysed is not None else planned.kernel.schema
        known = KnownView(
            request.sql, tuple(planned.definition.views), fingerprint(planned.definition), _hands_on(planned.kernel)
        )
        session.register_view(name, known, schema)


def _hands_on(kernel: ViewKernel) -> bool:
    """Whether a view is kept by operators, and its answer is all that the last one keeps."""
    root = kernel.tree.root.plan if isinstance(kernel, TreeView) else None
    return root is not None and root.limit is None and not root.root_required


def in_order(views: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Definitions as the log has them, each after those of the views that it reads."""
    done: set[str] = set()

    def visit(name: str) -> Iterator[tuple[str, Any]]:
        if name in done or name not in views:
            return
        done.add(name)
        for inner in views_of(views[name]):
            yield from visit(inner)
        yield name, views[name]

    for name in views:
        yield from visit(name)


def views_of(said: Any) -> tuple[str, ...]:
    """The views that a definition of the log says it reads; none where the log is damaged, which others find out."""
    choice = said.get("choice") if isinstance(said, Mapping) else None
    found = choice.get("views") if isinstance(choice, Mapping) else None
    return tuple(found) if isinstance(found, Mapping) else ()


def readers_of(view: str, views: Mapping[str, PlannedView]) -> list[str]:
    """The views whose queries name a view."""
    return [name for name, planned in views.items() if view in planned.definition.views]


def all_read_by(view: str, views: Mapping[str, PlannedView]) -> list[str]:
    """The views that a view reads, and those that these read."""
    found: dict[str, None] = {}
    left = [view]
    while left:
        more = [name for name in views[left.pop()].definition.views if name not in found and name in views]
        found |= dict.fromkeys(more)
        left += more
    return list(found)


def check_unread(view: str, readers: list[str]) -> None:
    """Refuse to drop a view that others read."""
    if readers:
        raise SchemaError(f"view {view!r} is read by {', '.join(readers)}", way_out="drop these first")


def check_not_itself(name: str, planned: PlannedView) -> None:
    """Refuse a view that would take the place of one that it reads."""
    if name in planned.definition.views:
        raise SchemaError(f"view {name!r} reads itself", way_out="read the tables and views that it is made of")


def check_open(definition: Definition, failed: FailedViews) -> None:
    """Refuse to open a view that reads one which could not be opened."""
    for inner in definition.views:
        if inner in failed:
            raise StorageError(
                f"it reads view {inner!r}, which could not be opened: {failed.handles[inner].problem}",
                way_out=f"see to {inner!r} first",
            )


def check_same(name: str, known: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Refuse a plan over other queries of views than those that made its state."""
    for view, text in known.items():
        if found.get(view) != text:
            raise StorageError(
                f"view {name!r} reads view {view!r}, whose query is another one than when {name!r} was made",
                way_out=f"drop {name!r} and create it again",
            )
