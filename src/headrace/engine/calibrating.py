"""Units of cost, fitted to the machine in the background: once per location and machine, and saved with the location.

Until they are fitted, the units measured on the developers' machine are used. They influence only the plans of later
views: the plan of an existing view is part of its definition.
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
from headrace.relation import disk
from headrace.runtime.location import write_atomically
from headrace.thrifty.calibration import fitted, from_json, probe, to_json
from headrace.thrifty.cost import UNITS, Units

SWITCH = "HEADRACE_CALIBRATE"
"""Environment variable; "0" leaves the units as they are."""
_FILE = "units.json"
DELAY = 20.0
"""Seconds from opening until fitting begins, so that it does not disturb first steps or short-lived engines."""
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
        """The fitted units, or the assumed ones until then."""
        return self._found or UNITS

    def start(self) -> None:
        """Fit the units in the background, unless they are fitted already or fitting is switched off."""
        if self._found is None and os.environ.get(SWITCH, "1") != "0":
            self._thread = threading.Thread(target=self._run, name="headrace-calibration", daemon=True)
            self._thread.start()
            # A program that ends without closing its engine would take the session away under a probe.
            atexit.register(self.stop)

    def stop(self) -> None:
        """Make no further probe; returns when the current one is over, or after some seconds of waiting."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(_PATIENCE)
        atexit.unregister(self.stop)

    def _run(self) -> None:
        if self._stopped.wait(DELAY):
            return
        # Whatever goes wrong (a stopped session, a full disk), the current units remain in use.
        with suppress(Exception):
            found = probe(self.query, self._stopped.is_set)
            if found is not None and not self._stopped.is_set():
                self._found = fitted(found)
                self._write(self._found)

    def query(self, rows: int) -> object:
        """Have Spark compute an aggregate with an exchange over this number of rows."""
        grouped = self._spark.range(rows).selectExpr("id % 8 AS g", "id").groupBy("g").sum("id")
        return grouped.collect()

    def _read(self) -> Units | None:
        try:
            data = json.loads(disk.read(self._path))
            return from_json(data["units"]) if data["machine"] == self._machine else None
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None

    def _write(self, units: Units) -> None:
        data = {"version": 1, "machine": self._machine, "units": to_json(units)}
        with suppress(StorageError):
            write_atomically(self._path, json.dumps(data, indent=2).encode(), fsync=False)
