"""Open an engine for a command, and show progress while Spark starts.

Commands that only read must not create anything, so they require a location that exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.cli.screen import working
from headrace.errors import StorageError

if TYPE_CHECKING:
    from headrace import Engine


@contextmanager
def opened(location: Path, *, existing: bool = False, **options: Any) -> Iterator[Engine]:
    """Open the engine at `location`, and close it afterwards; options are those of `Engine`."""
    if existing and not (location / "headrace.json").is_file():
        raise StorageError(
            f"There is no Headrace state at {location}.",
            way_out="Give the folder that `headrace run --location` was given (PIPELINE.state by default).",
        )
    with working("Starting Spark"):
        import headrace

        # A command that only reads must neither block a writer nor wait for one.
        engine = headrace.connect(str(location), read_only=existing, **options)
    try:
        yield engine
    finally:
        engine.close()
