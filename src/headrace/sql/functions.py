"""Which aggregate functions are kept up to date, by Catalyst's names, and why the others are not.

An aggregate can be kept if it is made of sums over the rows, or of the smallest, the largest and the distinct values of
a group. A reason helps more than a list, so each function that people ask for has its own reason, and its own way out.
"""

from __future__ import annotations

KEPT = {
    "Count": "count",
    "Sum": "sum",
    "Average": "avg",
    "Min": "min",
    "Max": "max",
    "VariancePop": "var_pop",
    "VarianceSamp": "var_samp",
    "StddevPop": "stddev_pop",
    "StddevSamp": "stddev_samp",
}
DISTINCT = {"Count": "count_distinct", "Sum": "sum_distinct", "Average": "avg_distinct"}
CHOSEN = {"First": "Min", "Last": "Max", "AnyValue": "Min"}
"""Functions that take the value of any row; here it is the least one, or the greatest."""
DEFINED = frozenset(CHOSEN)
"""Functions that Spark leaves to chance, and a view does not."""
DUPLICATES_DO_NOT_MATTER = frozenset({"Min", "Max", "BoolAnd", "BoolOr", "HyperLogLogPlusPlus", *CHOSEN})

_OTHERWISE = (
    "it is none of the aggregates that are kept up to date, which docs/sql.md lists",
    "express it with these, or compute it from the answer you read",
)
_ONE_OF_TIES = (
    "where several rows tie, which of them it takes is left to chance",
    "keep MIN(y) or MAX(y) for each group, and look up the row that has it when you read",
)
_ALL_VALUES = (
    "it puts all values of a group into one, which every change would have to write anew",
    "make a view of the rows themselves, SELECT key, x, and collect them from its answer",
)
_RANKS = (
    "it depends on the ranks of all values of a group, and a change can move every one of them",
    "make a view of SELECT key, x, COUNT(*) ... GROUP BY key, x, which is small where values repeat, "
    "and take it from the answer",
)
_PRODUCTS = (
    "it is made of products of two columns, which are not kept under this name",
    "let engine.covariance(...) keep the moments of all columns of a query; "
    "or keep COUNT(*), SUM(x), SUM(y), SUM(x * y) and the squares, and compute it from the answer",
)
_SQUARES = (
    "squares around the mean are kept as VARIANCE and STDDEV only",
    "write VAR_POP(x) * COUNT(x), with FILTER (WHERE y IS NOT NULL) after both",
)
_POWERS = (
    "sums of third and fourth powers are not kept under this name",
    "keep COUNT(x), SUM(x), SUM(x * x), SUM(x * x * x) and so on, and compute it from the answer",
)
_FREQUENT = (
    "where several values are as frequent, which of them it takes is left to chance",
    "make a view of SELECT key, x, COUNT(*) ... GROUP BY key, x, and take it from the answer",
)
_NEVER_NULL = (
    "where a sum does not fit its type, reading the view is an error, and NULL would hide that",
    "write SUM or AVG, of a wider type if need be",
)
REFUSED = {
    **dict.fromkeys(("MaxBy", "MinBy"), _ONE_OF_TIES),
    **dict.fromkeys(("CollectList", "CollectSet", "ListAgg"), _ALL_VALUES),
    **dict.fromkeys(("Percentile", "PercentileCont", "PercentileDisc", "ApproximatePercentile", "Median"), _RANKS),
    **dict.fromkeys(("Corr", "CovPopulation", "CovSample"), _PRODUCTS),
    **dict.fromkeys(("RegrSlope", "RegrIntercept", "RegrR2", "RegrSXY"), _PRODUCTS),
    **dict.fromkeys(("RegrSXX", "RegrSYY"), _SQUARES),
    **dict.fromkeys(("Skewness", "Kurtosis"), _POWERS),
    "Mode": _FREQUENT,
}


def why_refused(function: str, spelling: str) -> tuple[str, str]:
    """The reason why a function is not kept up to date, and a way out; `spelling` is its name in SQL."""
    return _NEVER_NULL if spelling.startswith("try_") else REFUSED.get(function, _OTHERWISE)
