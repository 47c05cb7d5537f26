"""Open an engine for a command, and show progress while Spark starts.

Commands that only read must not create anything, so they require a location that exists. They are answered without
Spark where that is possible, and say so where it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.cli.screen import working
from headrace.errors import SchemaError, StorageError

if TYPE_CHECKING:
    from headrace import Engine
    from headrace.engine.engine import Handle
    from headrace.engine.looking import Look

T = TypeVar("T")


@contextmanager
def opened(location: Path, *, why: str = "", **options: Any) -> Iterator[Engine]:
    """Open the engine at `location`, and close it afterwards; `why` is shown, and options are those of `Engine`."""
    with working(f"Starting Spark, because {why}" if why else "Starting Spark"):
        import headrace

        engine = headrace.connect(location, **options)
    try:
        yield engine
    finally:
        engine.close()


def looked(location: Path, question: Callable[[Look | Engine], T]) -> T:
    """Answer a question about a location that exists; Spark is started only if the answer needs it."""
    check_there(location)
    from headrace.engine import looking
    from headrace.engine.spark_needed import SparkNeeded

    try:
        with looking.Look(location) as look:
            return question(look)
    except SparkNeeded as needed:
        why = needed.why
    # A command that only reads must neither block a writer nor wait for one.
    with opened(location, why=why, read_only=True) as engine:
        return question(engine)


def check_there(location: Path) -> None:
    """Refuse a location that does not exist: a command about its state must not make one."""
    from headrace.engine.opening import location_at

    if not location_at(location).exists:
        raise StorageError(
            f"There is no Headrace state at {location}.",
            way_out="Give the folder that `headrace run --location` was given (PIPELINE.state by default).",
        )


def view_of(engine: Look | Engine, location: Path, name: str) -> Handle:
    """A view of a location, or an error that lists the views there are."""
    if name not in engine.views:
        known = ", ".join(sorted(engine.views)) or "none"
        raise SchemaError(f"There is no view {name} at {location}.", way_out=f"The views there are: {known}.")
    return engine.views[name]
