"""Units of cost, fitted to the machine in the background: once per location and machine, and saved with the location.

Until they are there, those of our machine have to do. Only choices still to be made depend on them: the plan of a view
that exists is part of its definition.
"""

from __future__ import annotations

import atexit
import json
import os
import platform
import threading
from contextlib import suppress
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.errors import StorageError
from headrace.runtime.location import write_atomically
from headrace.thrifty.calibration import fitted, from_json, probe, to_json
from headrace.thrifty.cost import UNITS, Units

SWITCH = "HEADRACE_CALIBRATE"
"""Environment variable; "0" leaves the units as they are."""
_FILE = "units.json"
DELAY = 20.0
"""Seconds after opening until it begins: first steps are left alone, and what is closed again needs no units."""
_PATIENCE = 10.0  # seconds to wait for the query of a probe, before the session may be stopped


class Calibration:
    """The units of one location."""

    def __init__(self, location: Path, spark: SparkSession) -> None:
        self._path = location / _FILE
        self._spark = spark
        self._machine = f"{platform.node()}, {os.cpu_count()} cores, Spark on {spark.sparkContext.master}"
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._found = self._read()

    @property
    def units(self) -> Units:
        """The units as fitted, or as they are assumed."""
        return self._found or UNITS

    def start(self) -> None:
        """Fit the units in the background, unless that has been done, or is switched off."""
        if self._found is None and os.environ.get(SWITCH, "1") != "0":
            self._thread = threading.Thread(target=self._run, name="headrace-calibration", daemon=True)
            self._thread.start()
            # A program that ends without closing its engine would take the session away under a probe.
            atexit.register(self.stop)

    def stop(self) -> None:
        """Make no further probe; returns when the current one is over."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(_PATIENCE)
        atexit.unregister(self.stop)

    def _run(self) -> None:
        if self._stopped.wait(DELAY):
            return
        # Whatever goes wrong (a session that was stopped, a full disk), the units that are there will do.
        with suppress(Exception):
            found = probe(self.query, self._stopped.is_set)
            if found is not None and not self._stopped.is_set():
                self._found = fitted(found)
                self._write(self._found)

    def query(self, rows: int) -> object:
        """Have Spark answer an aggregate with an exchange over so many rows."""
        grouped = self._spark.range(rows).selectExpr("id % 8 AS g", "id").groupBy("g").sum("id")
        return grouped.collect()

    def _read(self) -> Units | None:
        try:
            data = json.loads(self._path.read_text())
            return from_json(data["units"]) if data["machine"] == self._machine else None
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def _write(self, units: Units) -> None:
        data = {"version": 1, "machine": self._machine, "units": to_json(units)}
        with suppress(StorageError):
            write_atomically(self._path, json.dumps(data, indent=2).encode(), fsync=False)
