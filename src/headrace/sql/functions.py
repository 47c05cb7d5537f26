"""Which aggregate functions are kept up to date, by Catalyst's names, and why the others are not.

An aggregate can be kept if it is made of sums over the rows, or of the values of a group in their order: the smallest,
the most frequent, the one in the middle. A reason helps more than a list, so each function that people ask for has its
own reason, and its own way out.
"""

from __future__ import annotations

KEPT = {
    "Count": "count",
    "Sum": "sum",
    "Average": "avg",
    "Min": "min",
    "Max": "max",
    "MinBy": "min_by",
    "MaxBy": "max_by",
    "VariancePop": "var_pop",
    "VarianceSamp": "var_samp",
    "StddevPop": "stddev_pop",
    "StddevSamp": "stddev_samp",
    "RegrReplacement": "scatter",  # REGR_SXX and REGR_SYY, as the optimizer writes them
    "Skewness": "skewness",
    "Kurtosis": "kurtosis",
    "CovPopulation": "covar_pop",
    "CovSample": "covar_samp",
    "Corr": "corr",
    "RegrSlope": "regr_slope",
    "RegrIntercept": "regr_intercept",
    "RegrR2": "regr_r2",
    "RegrSXY": "regr_sxy",
    "BitAndAgg": "bit_and",
    "BitOrAgg": "bit_or",
    "BitXorAgg": "bit_xor",
    "Percentile": "percentile",
    "PercentileDisc": "percentile_disc",
    "ApproximatePercentile": "percentile_approx",
    "Mode": "mode",
    "ListAgg": "listagg",
}
MARKED_DISTINCT = frozenset({
    "VariancePop", "VarianceSamp", "StddevPop", "StddevSamp", "RegrReplacement", "Skewness", "Kurtosis", "BitXorAgg",
    "Percentile", "PercentileDisc", "ApproximatePercentile", "ListAgg",
    "Median", "PercentileCont",  # which the optimizer replaces by a percentile
})  # fmt: skip
"""Functions that are kept of the different values too, as themselves; COUNT, SUM and AVG have stand-ins for that."""
NULL_FOR_ONE = frozenset({"var_samp", "stddev_samp", "covar_samp", "corr", "skewness", "kurtosis"})
"""Functions that are NULL where they would divide by zero, unless an old setting of Spark makes them NaN."""
CHOSEN = {"First": "Min", "Last": "Max", "AnyValue": "Min"}
"""Functions that take the value of any row; here it is the least one, or the greatest."""
DUPLICATES_DO_NOT_MATTER = frozenset({
    "Min", "Max", "MinBy", "MaxBy", "BoolAnd", "BoolOr", "BitAndAgg", "BitOrAgg", "HyperLogLogPlusPlus", *CHOSEN
})  # fmt: skip

_OTHERWISE = (
    "it is none of the aggregates that are kept up to date, which docs/sql.md lists",
    "express it with these, or compute it from the answer you read",
)
_ALL_VALUES = (
    "it puts all values of a group into one, of a type that no column of a view has",
    "write LISTAGG, which makes a text of them; or make a view of the rows themselves, SELECT key, x, and collect them "
    "from its answer",
)
_NEVER_NULL = (
    "where a sum does not fit its type, reading the view is an error, and NULL would hide that",
    "write SUM or AVG, of a wider type if need be",
)
REFUSED = dict.fromkeys(("CollectList", "CollectSet"), _ALL_VALUES)


def why_refused(function: str, spelling: str) -> tuple[str, str]:
    """The reason why a function is not kept up to date, and a way out; `spelling` is its name in SQL."""
    return _NEVER_NULL if spelling.startswith("try_") else REFUSED.get(function, _OTHERWISE)
