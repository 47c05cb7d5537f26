"""What may be wrong with a location or with options of an engine, found before anything slow is loaded or started."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

from headrace.errors import CorruptFileError, SchemaError, StorageError
from headrace.remote.objects import options_of
from headrace.remote.root import Place, root_of
from headrace.runtime.location import MOST_BUCKETS, Location, Settings
from headrace.thrifty.keep.sizes import bytes_of

BAD_ROWS = ("fail", "quarantine")
AUTO, EXACT, OFF = "auto", "exact", "off"  # what views share (`sharing`)
PROCESS, DISK = "process", "disk"  # what a commit is safe from when it returns (`durability`)
_SHARING = (AUTO, EXACT, OFF)
LEVELS = (PROCESS, DISK)
_EXECUTORS = ("auto", "inline", "spark")
_URL = re.compile("([A-Za-z][A-Za-z0-9+.-]+):/(/?)")


def check_opening(
    location: str | Path,
    *,
    buckets: int | None,
    executor: str,
    on_bad_rows: str,
    driver_rows: int | None,
    read_only: bool,
    sharing: str,
    memory_budget: str | int | None = None,
    durability: str = PROCESS,
) -> None:
    """Raise whatever opening an engine would find wrong; makes nothing, and leaves nothing locked."""
    check_options(buckets, executor, on_bad_rows, driver_rows, sharing, memory_budget, durability)
    there = location_at(location)
    if there.remote is not None:
        return  # what Spark was told may be needed to reach it
    if not read_only:
        check_writable(there)
        if (there.root / "lock").exists():
            there.lock()
            there.unlock()
    existing(there, buckets, read_only=read_only)


def check_options(
    buckets: int | None,
    executor: str,
    on_bad_rows: str,
    driver_rows: int | None,
    sharing: str,
    memory_budget: str | int | None = None,
    durability: str = PROCESS,
) -> None:
    """Refuse options that no engine has."""
    bytes_of(memory_budget)
    one_of("executor", executor, _EXECUTORS)
    one_of("sharing", sharing, _SHARING)
    one_of("durability", durability, LEVELS)
    one_of("on_bad_rows", on_bad_rows, BAD_ROWS)
    if buckets is not None:
        check_buckets(buckets)
    if driver_rows is not None and driver_rows < 0:
        raise SchemaError(
            f"driver_rows={driver_rows} is out of range", way_out="choose 0 (no step runs in the driver) or more"
        )


def check_buckets(buckets: int) -> None:
    """Refuse a number of buckets that no location has."""
    if not 1 <= buckets <= MOST_BUCKETS:
        raise SchemaError(f"buckets={buckets} is out of range", way_out=f"choose from 1 to {MOST_BUCKETS}")


def check_classic(what: str, given: object) -> None:
    """Refuse sessions and DataFrames of Spark Connect: they have no JVM here, which plans queries and runs kernels."""
    if type(given).__module__.startswith("pyspark.sql.connect"):
        raise SchemaError(
            f"{what} is of Spark Connect, which Headrace cannot use: it plans with the JVM of the session itself",
            way_out="make the session without .remote(...) and without SPARK_REMOTE, as in "
            'SparkSession.builder.master("local[*]").getOrCreate(); on a cluster, give its master there',
        )


def one_of(what: str, given: str, allowed: tuple[str, ...]) -> None:
    """Refuse a word that an option does not know."""
    if given not in allowed:
        raise SchemaError(f"{what}={given!r} is not known", way_out=f"use one of {', '.join(map(repr, allowed))}")


def location_at(given: str | Path, setting: Callable[[str], str | None] = lambda name: None) -> Location:
    """The location of a path, or of a URL; a URL of an unknown kind is refused, and makes no folder of such a name.

    Parameters
    ----------
    setting : gives the settings of Spark, which may say how to reach a location that is elsewhere.
    """
    url = url_of(given)
    if url is None:
        return Location(given)
    scheme, _, rest = url.partition("://")
    if scheme == "file" and rest.startswith("/"):
        return Location(unquote(rest))
    if scheme == "file":
        raise StorageError(
            f"{given} is a URL with a host", way_out=f"give the path on this one: /{rest.partition('/')[2]}"
        )
    options = options_of(setting) if scheme in ("s3", "s3a") else {}
    return Location(root_of(Place(url.rstrip("/"), options, uuid.uuid4().hex)))


def url_of(given: str | Path) -> str | None:
    """What was given as a location, as a URL; None if it is a path.

    A URL that went through a Path (that of a command line, say) has lost one of its slashes, so `s3:/x` counts as one,
    too; a folder of that name is `/where/it/is/s3:/x`.
    """
    found = _URL.match(str(given))
    if found is None or not (found[2] or isinstance(given, Path)):
        return None
    scheme, rest = found[1].lower(), str(given)[found.end() :]
    return f"{scheme}://{'' if found[2] or scheme != 'file' else '/'}{rest}"


def check_writable(location: Location) -> None:
    """Refuse a file, a folder of something else, and what this user cannot make or write."""
    location.check_usable()
    if location.remote is not None:
        return
    root = location.root
    there = next(path for path in (root, *root.parents) if path.exists())
    if not there.is_dir():
        raise StorageError(f"{there} is a file, so {root} cannot be made", way_out="give a folder for the state")
    if not os.access(there, os.W_OK | os.X_OK):
        raise StorageError(
            f"{root} cannot be written: this user may not write to {there}",
            way_out="give another folder, or change its permissions; to look only, open it with read_only=True",
        )


def existing(location: Location, buckets: int | None, *, read_only: bool) -> Settings | None:
    """The settings of a location, or None where one can be made; `buckets` is the number that the user expects."""
    if not location.exists:
        if read_only:
            raise StorageError(
                f"{location.shown} is not a Headrace location", way_out="give the folder that an engine was opened with"
            )
        return None
    settings = location.settings()
    if location.remote is None and not location.log.is_dir():
        raise CorruptFileError(f"{location.log} is missing", way_out="restore the location from a backup")
    if buckets is not None and buckets != (there := _buckets(location, settings)):
        raise SchemaError(
            f"location {location.shown} has {there} buckets, not {buckets}",
            way_out=f"leave buckets out; or change their number once the location is open: engine.rebucket({buckets})",
        )
    return settings


def _buckets(location: Location, settings: Settings) -> int:
    """The number of buckets as of the newest commit that can be read; whoever opens the location finds damage."""
    from headrace.runtime.log import CommitLog  # here, because it loads NumPy, and most openings name no number

    return settings.as_of(CommitLog(location).settled()[-1].snapshot.settings).buckets
