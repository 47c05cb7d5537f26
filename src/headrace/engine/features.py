"""Which columns of a query are features and which are groups, or why the requested ones cannot be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import SchemaError
from headrace.learn.learner import CATEGORIES, MIXED, NUMBERS
from headrace.relation.variables import is_number

if TYPE_CHECKING:
    from headrace.relation.types import SqlType
    from headrace.sql.catalyst import AnalysedView

_CONTINUOUS = ("double", "float")
_CODED = ("string", "boolean", "date", "timestamp", "timestamp_ntz")  # types that levels may have, besides numbers


@dataclass(frozen=True)
class Chosen:
    """The columns of a query that are continuous features, categorical ones, and groups."""

    continuous: tuple[str, ...]
    categorical: tuple[str, ...]
    groups: tuple[str, ...]

    @property
    def features(self) -> tuple[str, ...]:
        return (*self.continuous, *self.categorical)


def choose_features(
    view: str,
    analysed: AnalysedView,
    asked: Sequence[str] | None,
    groups: Sequence[str],
    categorical: Sequence[str] = (),
    *,
    texts: bool = False,
    takes: str = MIXED,
) -> Chosen:
    """Resolve the names of features and of groups.

    Parameters
    ----------
    asked : the features; by default all columns that are numbers (and, with `texts`, those of text) and no groups.
    categorical : which of them are categories although they are numbers; other values than numbers always are.
    takes : whether features may be numbers, categories or both (`learn.learner`).
    """
    kinds = {name: kind for name, kind, _ in analysed.schema}
    spelled = {name.lower(): name for name in kinds}
    for group in groups:
        if group.lower() not in spelled:
            raise unknown(view, "GROUP BY column", group, kinds)
    by = tuple(spelled[group.lower()] for group in groups)
    if isinstance(asked, str) or (asked is not None and not asked):
        raise SchemaError(f"view {view!r}: features={asked!r}", way_out="give a list of column names, at least one")
    if asked is None and takes == CATEGORIES:
        asked = tuple(name for name in kinds if name not in by) or None
    chosen = tuple(asked) if asked is not None else _default(kinds, by, categorical, texts)
    if not chosen:
        raise SchemaError(
            f"view {view!r}: the query has no numeric or text column that is not a group",
            way_out="SELECT the columns that are to be features",
        )
    for name in (*chosen, *categorical):
        if name not in kinds:
            raise unknown(view, "feature", name, kinds)
        if name in by:
            raise SchemaError(
                f"view {view!r}: {name!r} is grouped by, so it is the same throughout each group",
                way_out="leave it out of the features, or out of GROUP BY",
            )
    if len(set(chosen)) < len(chosen):
        raise SchemaError(f"view {view!r}: a feature is named twice", way_out="name each feature once")
    if others := [name for name in categorical if name not in chosen]:
        raise SchemaError(
            f"view {view!r}: categorical={others!r} is not among the features", way_out="name it in features too"
        )
    every = takes == CATEGORIES
    is_category = {name: every or name in categorical or not is_number(kinds[name]) for name in chosen}
    for name in chosen:
        _check_taken(view, name, kinds[name], takes, is_category=is_category[name])
        if is_category[name] and kinds[name].kind not in _CODED and not kinds[name].is_numeric:
            raise SchemaError(
                f"view {view!r}: feature {name!r} is {str(kinds[name]).upper()}, which has no levels",
                way_out="leave it out, or SELECT a number or a text made of it",
            )
    continuous = tuple(name for name in chosen if not is_category[name])
    return Chosen(continuous, tuple(name for name in chosen if is_category[name]), by)


def _check_taken(view: str, name: str, kind: SqlType, takes: str, *, is_category: bool) -> None:
    """Refuse a category where numbers are wanted, and a number with a level per value where categories are."""
    if takes == NUMBERS and is_category:
        raise SchemaError(
            f"view {view!r}: feature {name!r} is {str(kind).upper()}, not a number",
            way_out="leave it out, or SELECT a number for it, as in CASE WHEN ... THEN 1 ELSE 0 END",
        )
    if takes == CATEGORIES and kind.kind in _CONTINUOUS:
        raise SchemaError(
            f"view {view!r}: feature {name!r} is {str(kind).upper()}, so that nearly every value is a level",
            way_out=f"give its bins, as in bins={{{name!r}: [10, 20]}} or hr.equal_bins(frame, [{name!r}], 10); "
            "or SELECT an integer or a text for it",
        )


def _default(
    kinds: Mapping[str, SqlType], by: Sequence[str], categorical: Sequence[str], texts: bool
) -> tuple[str, ...]:
    """Numbers are features, and text is; dates are only if they are named, since most of them identify a row."""

    def is_feature(name: str) -> bool:
        return is_number(kinds[name]) or (texts and kinds[name].kind == "string") or name in categorical

    return tuple(name for name in kinds if is_feature(name) and name not in by)


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
