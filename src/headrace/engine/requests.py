"""From the options of a user to a definition; contradicting options are refused before anything is planned."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.engine.definition import Definition, ModelRequest, MomentsRequest, SqlRequest, VariableOrder, Wishes
from headrace.engine.models import settings
from headrace.engine.opening import one_of
from headrace.errors import SchemaError
from headrace.learn.regression import LinearRegression
from headrace.thrifty.strategy import RECOMPUTE

_REFRESH = ("auto", "incremental", "full")


def view_request(
    name: str,
    sql: str,
    *,
    strategy: str,
    refresh: str,
    order: VariableOrder | None,
    partition: str | None,
    final: bool,
) -> Definition:
    """The definition of a SQL view."""
    return Definition(SqlRequest(sql, _wishes(name, strategy, refresh, order, partition), final))


def covariance_request(
    name: str,
    over: str,
    features: Sequence[str] | None,
    *,
    strategy: str,
    refresh: str,
    order: VariableOrder | None,
    partition: str | None,
) -> Definition:
    """The definition of moments."""
    wishes = _wishes(name, strategy, refresh, order, partition)
    return Definition(MomentsRequest(over, wishes, None if features is None else tuple(features)))


def model_request(
    name: str,
    model: LinearRegression,
    over: str,
    *,
    strategy: str,
    refresh: str,
    order: VariableOrder | None,
    partition: str | None,
) -> Definition:
    """The definition of a model."""
    if not isinstance(model, LinearRegression):
        raise SchemaError(
            f"model {name!r}: {model!r} is no model", way_out="pass one, as in hr.LinearRegression(label='price')"
        )
    features = None if model.features is None else (*model.features, model.label)
    wishes = _wishes(name, strategy, refresh, order, partition)
    return Definition(ModelRequest(over, wishes, features, settings(model)))


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
