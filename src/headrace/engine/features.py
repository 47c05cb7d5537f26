"""Which columns of a query are features and which are groups, or why the requested ones cannot be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.errors import SchemaError
from headrace.relation.variables import is_number

if TYPE_CHECKING:
    from headrace.sql.catalyst import AnalysedView


def choose_features(
    view: str, analysed: AnalysedView, asked: Sequence[str] | None, groups: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Resolve the names of features (default: all numbers that are not groups) and of groups."""
    kinds = {name: kind for name, kind, _ in analysed.schema}
    spelled = {name.lower(): name for name in kinds}
    for group in groups:
        if group.lower() not in spelled:
            raise unknown(view, "GROUP BY column", group, kinds)
    by = tuple(spelled[group.lower()] for group in groups)
    if asked is None:
        chosen = tuple(name for name, kind in kinds.items() if is_number(kind) and name not in by)
        if not chosen:
            raise SchemaError(
                f"view {view!r}: the query has no numeric column that is not a group",
                way_out="SELECT the columns that are to be features",
            )
        return chosen, by
    if isinstance(asked, str) or not asked:
        raise SchemaError(f"view {view!r}: features={asked!r}", way_out="give a list of column names, at least one")
    for name in asked:
        if name not in kinds:
            raise unknown(view, "feature", name, kinds)
        if not is_number(kinds[name]):
            raise SchemaError(
                f"view {view!r}: feature {name!r} is {str(kinds[name]).upper()}, not a number",
                way_out="leave it out, or SELECT a number for it, as in CASE WHEN ... THEN 1 ELSE 0 END",
            )
        if name in by:
            raise SchemaError(
                f"view {view!r}: {name!r} is grouped by, so it is the same throughout each group",
                way_out="leave it out of the features, or out of GROUP BY",
            )
    if len(set(asked)) < len(asked):
        raise SchemaError(f"view {view!r}: a feature is named twice", way_out="name each feature once")
    return tuple(asked), by


def check_apart(view: str, variables: Mapping[str, str], features: Sequence[str], groups: Sequence[str]) -> None:
    """Refuse a feature that is the same variable of the join as another feature or a group."""
    seen = {variables[group]: group for group in groups}
    for feature in features:
        if (other := seen.setdefault(variables[feature], feature)) != feature:
            raise SchemaError(
                f"view {view!r}: {feature!r} equals {other!r} in every row, so it says nothing of its own",
                way_out=f"leave {feature!r} out of the features",
            )


def unknown(view: str, what: str, name: str, known: Iterable[str]) -> SchemaError:
    """The error for an unknown name, with similar known names, or with all of them."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=3)
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"the query has {', '.join(known)}"
    return SchemaError(f"view {view!r}: the query has no {what} {name!r}", way_out=hint)
