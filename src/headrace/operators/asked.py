"""What each aggregate function is made of: the sums that it needs, and how the values of a group have to lie.

Everything that is kept for aggregates follows from these tables. A function of the different values of a group is
called like the function of all values, with `_distinct` behind it: it is made of the same parts, in which each value
counts once.
"""

from __future__ import annotations

from headrace.plan.view import Aggregate

_DISTINCT = "_distinct"

SPREADS = frozenset({"var_pop", "var_samp", "stddev_pop", "stddev_samp"})
POWERS = dict.fromkeys((*SPREADS, "scatter"), 2) | {"skewness": 3, "kurtosis": 4}
"""Functions of the powers of values, and the highest power. The scatter is that of REGR_SXX: squares about the mean."""
SQUARED: dict[str, tuple[int, ...]] = {
    "covar_pop": (),
    "covar_samp": (),
    "regr_sxy": (),
    "corr": (0, 1),
    "regr_r2": (0, 1),
    "regr_slope": (1,),
    "regr_intercept": (1,),
}
"""Functions of two numbers, of which a row has both or none; and of which of the two the squares are needed."""
BITS = frozenset({"bit_and", "bit_or"})
PERCENTILES = frozenset({"percentile", "percentile_disc", "percentile_approx"})
SUMS = ("sum", "squares", "cubes", "fourths")
"""The sums of the first, the second, the third and the fourth powers."""

DISTINCT = frozenset(
    f"{name}{_DISTINCT}" for name in ("count", "sum", "avg", *POWERS, "bit_xor", *PERCENTILES, "listagg")
)
"""The functions of different values, in which a value counts once."""
LOOKED_UP = frozenset({"min", "max", "max_by", "min_by", "mode", "listagg", f"listagg{_DISTINCT}"}) | BITS
"""The functions whose values are looked up in arrangements whenever they are read."""


def plain(function: str) -> str:
    """A function without its DISTINCT.

    >>> plain("sum_distinct"), plain("sum")
    ('sum', 'sum')
    """
    return function.removesuffix(_DISTINCT)


def is_distinct(function: str) -> bool:
    """Whether a function is one of the different values."""
    return function.endswith(_DISTINCT)


def sums_of(function: str) -> tuple[str, ...]:
    """The parts of the payload that a function of one argument needs: first the count of values, then their sums.

    >>> sums_of("avg"), sums_of("var_pop_distinct")
    (('present', 'sum'), ('distinct', 'distinct_sum', 'distinct_squares'))
    """
    base = plain(function)
    if base in POWERS:
        needed = SUMS[: POWERS[base]]
    elif base in ("sum", "avg"):
        needed = ("sum",)
    elif base == "bit_xor":
        needed = ("parity",)
    elif base == "count" or base in BITS:
        needed = ()
    else:
        return ()
    return ("distinct", *(f"distinct_{one}" for one in needed)) if is_distinct(function) else ("present", *needed)


def is_sum(function: str) -> bool:
    """Whether a function sums its argument, or powers of it, so that some values are too large for it."""
    return plain(function) in SQUARED or any("sum" in part for part in sums_of(function))


def orders_by(aggregate: Aggregate) -> tuple[int, int] | None:
    """Of an aggregate that takes one argument in the order of another, that which orders and that which is taken."""
    if aggregate.argument is None or not aggregate.others:
        return None
    if aggregate.function in ("max_by", "min_by"):
        return aggregate.argument, aggregate.others[0]
    return (aggregate.others[0], aggregate.argument) if aggregate.function == "listagg" else None
