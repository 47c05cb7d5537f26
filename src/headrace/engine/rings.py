"""Registering a ring of the user, so that SQL can sum in it by name.

Rings belong to the process and not to one engine: a location is opened by planning its views, and for that the names in
their SQL have to mean something already.
"""

from __future__ import annotations

from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as spark_functions

from headrace.errors import SchemaError
from headrace.relation.types import SqlType
from headrace.rings import registry
from headrace.rings.checked import check_custom_ring
from headrace.rings.named import sql_type_of
from headrace.sql.rings import check_no_function, is_function


def register_ring(name: str, ring: Any) -> None:
    """Let SQL sum in a ring: `name(x, y)` is the sum, over the rows of a group, of the products of their lifted values.

    A row in which an argument is NULL does not count, and a group without rows that count gives NULL. Views over tables
    and their inner joins keep such sums; what each argument reads must be in one table.

    Parameters
    ----------
    name : what SQL calls it: letters, digits and underscores, in any case, and no function of Spark.
    ring : an instance of a class that inherits from `hr.Ring` or `hr.Semiring`, or has the same methods. What has no
        `negate` is a semiring: deletions below a view that sums in it are bad rows.

    The laws of its algebra are tried on samples, and a ring that breaks one is refused. Registering an equal ring again
    changes nothing; another one takes the name over, unless a view of an open engine uses it. A location whose views
    sum in rings is opened after these were registered.
    """
    key = registry.check_ring_name(name)
    if key in spark_functions.__all__:
        raise is_function(name)
    session = SparkSession.getActiveSession()
    if session is not None:  # else it is found out when a query first names the ring
        check_no_function(session, name)
    check_custom_ring(name, ring)
    _check_shown(name, ring)
    _check_sent(name, ring)
    registry.register(name, ring)


def _check_shown(name: str, ring: Any) -> None:
    try:
        SqlType.parse(sql_type_of(ring))
    except SchemaError as error:
        raise SchemaError(f"ring {name!r}: its sql_type is none: {error.what}", way_out=error.way_out) from error


def _check_sent(name: str, ring: Any) -> None:
    try:
        cloudpickle.loads(cloudpickle.dumps(ring))
    except Exception as error:  # whatever its attributes raise
        raise SchemaError(
            f"ring {name!r} cannot be sent to Spark's tasks: {type(error).__name__}: {error}",
            way_out="keep plain values and arrays in its attributes: no sessions, locks or open files",
        ) from error
