"""Products of dense matrices: they have a call of their own, and there is one way to keep them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from headrace.engine.definition import MatrixAnswer, MatrixChainRequest, PlannedView
from headrace.engine.explain import Known
from headrace.engine.strategies.kept import Kept
from headrace.explain.report import Report
from headrace.factorized import chain_report
from headrace.factorized.chain_view import ChainView, chain_of
from headrace.thrifty.cost import Cost
from headrace.thrifty.statistics import Statistics
from headrace.thrifty.strategy import MATRIX_CHAIN

if TYPE_CHECKING:
    from headrace.engine.strategies.query import Query


class MatrixChainProduct(Kept[ChainView, MatrixAnswer]):
    """A binary tree of products, whose changes stay factorized."""

    name = MATRIX_CHAIN
    kinds: ClassVar[tuple[str, ...]] = (MATRIX_CHAIN,)

    def planned(self, query: Query) -> PlannedView[ChainView, MatrixAnswer]:
        asked = query.definition.request
        assert isinstance(asked, MatrixChainRequest)
        kernel = chain_of(asked.matrices, list(zip(asked.rows, asked.columns, strict=True)), query.buckets)
        tables = tuple(dict.fromkeys(asked.matrices))
        return PlannedView(query.definition.with_choice(self.name), kernel, tables, MatrixAnswer(kernel))

    def estimate(self, plan: PlannedView[ChainView, MatrixAnswer], statistics: Statistics) -> Cost:
        tables = {table: table for table in plan.tables}
        return Cost(statistics.of_sources(tables, dict.fromkeys(tables, False)).changed, statistics.units.group)

    def explain(self, plan: PlannedView[ChainView, MatrixAnswer], known: Known) -> Report:
        return chain_report.report(plan.kernel, known.subject)
