"""Reference levels: which level of a category a model leaves out, and what the coefficients of the others then mean.

The columns of all levels of a category add up to one, as does the intercept, so that least squares cannot tell them
apart. Without the column of one level, the coefficient of each other is its difference from that one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import SchemaError
from headrace.learn.mixed_moments import MixedMoments
from headrace.learn.moments import Doubles, instead
from headrace.learn.terms import Levels, Number, Term

_MOST_COLUMNS = 20_000  # a square matrix of so many columns is 3 GB


def reference_levels(moments: MixedMoments, drop: str | Mapping[str, Any] | None) -> dict[str, int]:
    """The code of the level that is left out, per category; a category without levels has none."""
    if drop is None:
        return {}
    wanted = drop if isinstance(drop, Mapping) else {}
    if unknown := [name for name in wanted if name not in moments.categorical]:
        raise SchemaError(
            f"drop names {unknown[0]!r}, which is no categorical feature", way_out=instead(unknown, moments.categorical)
        )
    out = {}
    for name in moments.categorical:
        values = [str(value) for value in moments.levels(name).to_pylist()]
        if values:
            asked = str(wanted[name]) if name in wanted else values[0]
            out[name] = values.index(asked) if asked in values else 0
    return out


def check_columns(moments: MixedMoments) -> None:
    """Refuse categories with so many levels that no matrix of them would fit."""
    levels = {name: len(moments.levels(name)) for name in moments.categorical}
    if sum(levels.values()) > _MOST_COLUMNS:
        largest = max(levels, key=lambda name: levels[name])
        raise SchemaError(
            f"the categories have {sum(levels.values()):,} levels, {levels[largest]:,} of them in {largest!r}, and a "
            f"regression solves for at most {_MOST_COLUMNS:,}",
            way_out=f"leave {largest!r} out of the features, or SELECT a coarser category for it",
        )


def fitted_terms(
    names: Sequence[str],
    coef: Doubles,
    levels: Mapping[str, pa.Array],
    reference: Mapping[str, Any],
    unknown: str,
) -> list[Term]:
    """A fitted model as terms; columns of levels stand behind the numbers, category by category."""
    columns = sum(len(values) - (name in reference) for name, values in levels.items())
    first = len(names) - columns
    terms: list[Term] = [Number(name, float(weight)) for name, weight in zip(names[:first], coef, strict=False)]
    for name, values in levels.items():
        own = np.zeros(len(values))
        kept = np.array([name not in reference or value != reference[name] for value in values.to_pylist()], bool)
        own[kept] = coef[first : first + int(kept.sum())]
        first += int(kept.sum())
        terms.append(Levels(name, values, own, np.nan if unknown == "null" else 0.0))
    return terms
