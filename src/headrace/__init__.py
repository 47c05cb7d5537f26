"""Headrace keeps answers over changing data fresh on Apache Spark, at the cost of the change."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.engine.connecting import connect as connect
    from headrace.engine.engine import Engine as Engine
    from headrace.engine.handles import Finals as Finals
    from headrace.engine.handles import Table as Table
    from headrace.engine.handles import View as View
    from headrace.engine.matrix_chains import MatrixChain as MatrixChain
    from headrace.engine.matrix_chains import SparseChain as SparseChain
    from headrace.engine.model_handle import Model as Model
    from headrace.engine.models import Covariance as Covariance
    from headrace.engine.rings import register_ring as register_ring
    from headrace.engine.step import Step as Step
    from headrace.engine.window_joins import WindowJoinView as WindowJoinView
    from headrace.engine.window_streams import WindowJoinStream as WindowJoinStream
    from headrace.engine.window_streams import window_join as window_join
    from headrace.errors import ArithmeticOverflowError as ArithmeticOverflowError
    from headrace.errors import BadRowsError as BadRowsError
    from headrace.errors import CorruptFileError as CorruptFileError
    from headrace.errors import HeadraceError as HeadraceError
    from headrace.errors import JavaNotFoundError as JavaNotFoundError
    from headrace.errors import NotEnoughDataError as NotEnoughDataError
    from headrace.errors import PipelineError as PipelineError
    from headrace.errors import SchemaError as SchemaError
    from headrace.errors import StepFailedError as StepFailedError
    from headrace.errors import StorageError as StorageError
    from headrace.errors import UnsupportedSQLError as UnsupportedSQLError
    from headrace.errors import VariableOrderError as VariableOrderError
    from headrace.explain.report import Report as Report
    from headrace.learn.bins import equal_bins as equal_bins
    from headrace.learn.chow_liu import ChowLiuTree as ChowLiuTree
    from headrace.learn.elastic_net import ElasticNet as ElasticNet
    from headrace.learn.linear import NotConvergedWarning as NotConvergedWarning
    from headrace.learn.mutual_information import MutualInformation as MutualInformation
    from headrace.learn.naive_bayes import NaiveBayes as NaiveBayes
    from headrace.learn.pca import PCA as PCA
    from headrace.learn.regression import CollinearWarning as CollinearWarning
    from headrace.learn.regression import LinearRegression as LinearRegression
    from headrace.operators.kernel import ViewChange as ViewChange
    from headrace.relation.outer import Outer as Outer
    from headrace.relation.outer import outer as outer
    from headrace.relation.product import Product as Product
    from headrace.relation.product import product as product
    from headrace.rings.custom import Ring as Ring
    from headrace.rings.custom import Semiring as Semiring
    from headrace.sql.window_text import sliding as sliding
    from headrace.sql.window_text import tumbling as tumbling
    from headrace.thrifty.goal import AtWindowEnd as AtWindowEnd
    from headrace.thrifty.goal import Budget as Budget
    from headrace.thrifty.goal import Every as Every
    from headrace.thrifty.goal import EveryRows as EveryRows
    from headrace.thrifty.goal import FinalWork as FinalWork
    from headrace.thrifty.goal import Freshness as Freshness
    from headrace.thrifty.goal import Manual as Manual
    from headrace.thrifty.goal import OnRefresh as OnRefresh
    from headrace.thrifty.goal import TargetLag as TargetLag

__version__ = "0.1.0"

# Loaded when first used, so that `headrace --help` and Spark-free imports do not wait for Spark.
_HOMES = {
    "Engine": "headrace.engine.engine",
    "connect": "headrace.engine.connecting",
    "Finals": "headrace.engine.handles",
    "Table": "headrace.engine.handles",
    "View": "headrace.engine.handles",
    "Step": "headrace.engine.step",
    "WindowJoinView": "headrace.engine.window_joins",
    "WindowJoinStream": "headrace.engine.window_streams",
    "window_join": "headrace.engine.window_streams",
    "MatrixChain": "headrace.engine.matrix_chains",
    "SparseChain": "headrace.engine.matrix_chains",
    "Covariance": "headrace.engine.models",
    "Model": "headrace.engine.model_handle",
    "LinearRegression": "headrace.learn.regression",
    "ElasticNet": "headrace.learn.elastic_net",
    "PCA": "headrace.learn.pca",
    "MutualInformation": "headrace.learn.mutual_information",
    "ChowLiuTree": "headrace.learn.chow_liu",
    "NaiveBayes": "headrace.learn.naive_bayes",
    "equal_bins": "headrace.learn.bins",
    "CollinearWarning": "headrace.learn.regression",
    "NotConvergedWarning": "headrace.learn.linear",
    "ArithmeticOverflowError": "headrace.errors",
    "BadRowsError": "headrace.errors",
    "CorruptFileError": "headrace.errors",
    "HeadraceError": "headrace.errors",
    "JavaNotFoundError": "headrace.errors",
    "NotEnoughDataError": "headrace.errors",
    "PipelineError": "headrace.errors",
    "SchemaError": "headrace.errors",
    "StepFailedError": "headrace.errors",
    "StorageError": "headrace.errors",
    "UnsupportedSQLError": "headrace.errors",
    "VariableOrderError": "headrace.errors",
    "Report": "headrace.explain.report",
    "ViewChange": "headrace.operators.kernel",
    "Outer": "headrace.relation.outer",
    "outer": "headrace.relation.outer",
    "Product": "headrace.relation.product",
    "product": "headrace.relation.product",
    "Ring": "headrace.rings.custom",
    "Semiring": "headrace.rings.custom",
    "register_ring": "headrace.engine.rings",
    "sliding": "headrace.sql.window_text",
    "tumbling": "headrace.sql.window_text",
    "AtWindowEnd": "headrace.thrifty.goal",
    "Budget": "headrace.thrifty.goal",
    "Every": "headrace.thrifty.goal",
    "EveryRows": "headrace.thrifty.goal",
    "FinalWork": "headrace.thrifty.goal",
    "Freshness": "headrace.thrifty.goal",
    "Manual": "headrace.thrifty.goal",
    "OnRefresh": "headrace.thrifty.goal",
    "TargetLag": "headrace.thrifty.goal",
}
__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
