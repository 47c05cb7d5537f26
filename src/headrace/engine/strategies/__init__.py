"""The strategies by which views are kept, one per file; where costs do not decide, earlier ones come first."""

from typing import Any

from headrace.engine.definition import PlannedView
from headrace.engine.strategies.factorized import Factorized
from headrace.engine.strategies.foreign_key import ForeignKey
from headrace.engine.strategies.kept import Kept
from headrace.engine.strategies.matrix_chain import MatrixChainProduct
from headrace.engine.strategies.one_table import OneTable
from headrace.engine.strategies.operators import Operators
from headrace.engine.strategies.recompute import FSql, Recompute
from headrace.engine.strategies.window_join import WindowJoin
from headrace.thrifty.strategy import FIRST_ORDER, RECURSIVE

STRATEGIES: tuple[Kept[Any, Any], ...] = (
    OneTable(),
    Factorized(),
    Factorized(RECURSIVE),
    Factorized(FIRST_ORDER),
    ForeignKey(),
    Operators(),
    Recompute(),
    FSql(),
    WindowJoin(),
    MatrixChainProduct(),
)


def strategy_of(view: PlannedView) -> Kept[Any, Any]:
    """The strategy by which a view is kept."""
    return next(strategy for strategy in STRATEGIES if strategy.name == view.definition.strategy)
