"""From the options of a user to a definition; contradicting options are refused before anything is planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from headrace.engine.definition import (
    LISTING,
    Definition,
    ModelRequest,
    MomentsRequest,
    SqlRequest,
    VariableOrder,
    Wishes,
)
from headrace.engine.opening import one_of
from headrace.errors import SchemaError
from headrace.learn.learner import NUMBERS, Learner
from headrace.learn.registry import settings_of
from headrace.relation.duration import Duration
from headrace.thrifty.goal import Freshness, Manual
from headrace.thrifty.strategy import FACTORIZED, RECOMPUTE

_REFRESH = ("auto", "incremental", "full")
_WHEN = ("eager", "lazy")  # when a view is refreshed, rather than how
_REPRESENTATIONS = (LISTING, FACTORIZED)


def view_request(
    name: str,
    sql: str,
    *,
    strategy: str,
    refresh: str,
    order: VariableOrder | None,
    partition: str | None,
    final: bool,
    representation: str = LISTING,
) -> Definition:
    """The definition of a SQL view."""
    one_of("refresh", refresh, (*_REFRESH, *_WHEN))
    one_of("representation", representation, _REPRESENTATIONS)
    wishes = _wishes(name, strategy, "auto" if refresh in _WHEN else refresh, order, partition)
    if representation != LISTING and refresh == "full":
        raise SchemaError(
            f"view {name!r}: refresh='full' has Spark list all rows, so nothing is factorized",
            way_out="leave refresh or representation out; refresh='lazy' lets changes wait until the view is read",
        )
    return Definition(SqlRequest(sql, replace(wishes, representation=representation), final, refresh == "lazy"))


def idle(definition: Definition, after: str | timedelta | Duration | None) -> Definition:
    """The definition with the time after which an idle view lets go of state."""
    return replace(definition, idle_after=None if after is None else Duration.parse(after))


def refreshed(name: str, refresh: str, freshness: Freshness | None) -> Freshness | None:
    """How fresh a view has to be, if its user says when it is refreshed: by every step, or when it is read."""
    if refresh in _WHEN and freshness is not None:
        raise SchemaError(
            f"view {name!r}: refresh={refresh!r} and the goal {freshness} both say when it is refreshed",
            way_out="leave one of the two out",
        )
    return Freshness(Manual()) if refresh == "lazy" else freshness


def covariance_request(
    name: str,
    over: str,
    features: Sequence[str] | None,
    categorical: Sequence[str] = (),
    *,
    strategy: str,
    refresh: str,
    order: VariableOrder | None,
    partition: str | None,
) -> Definition:
    """The definition of moments."""
    wishes = _wishes(name, strategy, refresh, order, partition)
    asked = None if features is None else tuple(features)
    return Definition(MomentsRequest(over, wishes, asked, _names(name, categorical), texts=True))


def model_request(
    name: str,
    model: Learner,
    over: str,
    categorical: Sequence[str] = (),
    *,
    strategy: str,
    refresh: str,
    order: VariableOrder | None,
    partition: str | None,
) -> Definition:
    """The definition of a model."""
    settings = settings_of(name, model)
    wishes = _wishes(name, strategy, refresh, order, partition)
    needs, chosen = model.needs(), _names(name, categorical)
    if chosen and needs.takes == NUMBERS:
        raise SchemaError(
            f"model {name!r}: categorical={list(chosen)!r}, and {type(model).__name__} learns from numbers",
            way_out="leave it out, or SELECT a number for it, as in CASE WHEN ... THEN 1 ELSE 0 END",
        )
    texts = needs.takes != NUMBERS
    return Definition(ModelRequest(over, wishes, needs.columns, settings, categorical=chosen, texts=texts))


def _names(name: str, categorical: Sequence[str]) -> tuple[str, ...]:
    if isinstance(categorical, str):
        raise SchemaError(f"view {name!r}: categorical={categorical!r}", way_out=f"pass a list: [{categorical!r}]")
    return tuple(categorical)


def _wishes(name: str, strategy: str, refresh: str, order: VariableOrder | None, partition: str | None) -> Wishes:
    """How the user wants a view to be kept. Recomputing is a strategy internally; users write `refresh="full"`."""
    one_of("refresh", refresh, _REFRESH)
    if strategy == RECOMPUTE:
        raise SchemaError(
            f"view {name!r}: strategy={strategy!r} is not known",
            way_out="use refresh='full' to have Spark recompute it",
        )
    if refresh == "full" and strategy != "auto":
        raise SchemaError(
            f"view {name!r}: refresh='full' recomputes, and strategy={strategy!r} does not",
            way_out="leave one of the two out",
        )
    return Wishes(RECOMPUTE if refresh == "full" else strategy, order, partition, never_full=refresh == "incremental")
