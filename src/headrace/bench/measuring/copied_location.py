"""Engines on copies of a location: no run meets what another has left, and nothing is loaded twice.

A location whose engine is closed is a folder of files that are never changed, only added to and removed. So a copy
links its runs, which are nearly all of its bytes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headrace.engine.engine import Engine


@contextmanager
def engine_on_copy(spark: SparkSession, location: Path, **options: Any) -> Iterator[Engine]:
    """Open an engine on a copy of a location; the copy is removed when the engine is closed."""
    place = Path(tempfile.mkdtemp(prefix="location-", dir=location.parent))
    runs = location / "runs"

    def copy(source: str, target: str) -> None:
        # Only runs are never written to again; the lock, for one, is.
        (os.link if Path(source).parent == runs else shutil.copyfile)(source, target)

    try:
        shutil.copytree(location, place, copy_function=copy, dirs_exist_ok=True)
        with Engine(spark, place, **options) as engine:
            yield engine
    finally:
        shutil.rmtree(place, ignore_errors=True)
