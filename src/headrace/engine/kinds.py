"""The handle of each kind of view. Handles are loaded when a view has that kind: models and window joins are large."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from headrace.thrifty.strategy import MATRIX_CHAIN, WINDOW_JOIN

if TYPE_CHECKING:
    from headrace.engine.engine import Handle

_HANDLES = {
    "view": "headrace.engine.handles:View",
    "covariance": "headrace.engine.models:Covariance",
    "model": "headrace.engine.model_handle:Model",
    MATRIX_CHAIN: "headrace.engine.matrix_chains:MatrixChain",
    WINDOW_JOIN: "headrace.engine.window_joins:WindowJoinView",
}


def handle_class(kind: str) -> type[Handle]:
    """The class of handles for views of a kind."""
    module, _, name = _HANDLES[kind].partition(":")
    return cast("type[Handle]", getattr(import_module(module), name))
