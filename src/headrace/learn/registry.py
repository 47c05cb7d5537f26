"""All models that an engine can keep, by name: a model that is added here is stored, kept and read as the others are.

The laws of `testing.models` are tried on each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.errors import SchemaError, StorageError
from headrace.learn.chow_liu import ChowLiuTree
from headrace.learn.elastic_net import ElasticNet
from headrace.learn.learner import Learner
from headrace.learn.mutual_information import MutualInformation
from headrace.learn.naive_bayes import NaiveBayes
from headrace.learn.pca import PCA
from headrace.learn.regression import LinearRegression

KIND = "kind"
_ALL = (LinearRegression, ElasticNet, PCA, MutualInformation, ChowLiuTree, NaiveBayes)
MODELS: dict[str, type[Learner]] = {kind.__name__: kind for kind in _ALL}


def settings_of(name: str, model: object) -> dict[str, Any]:
    """The settings of a model, with its kind, as plain values; refuses what is no model."""
    kind = type(model).__name__
    if not isinstance(model, Learner) or MODELS.get(kind) is not type(model):
        raise SchemaError(
            f"model {name!r}: {model!r} is no model", way_out="pass one, as in hr.LinearRegression(label='price')"
        )
    return {KIND: kind, **model.settings()}


def model_of(settings: Mapping[str, Any]) -> Learner:
    """Make a model from its stored settings; those that were stored before models had kinds are linear regressions.

    >>> model_of({"kind": "LinearRegression", "label": "price", "alpha": 1.0})
    LinearRegression('price', None, alpha=1.0, solver='cholesky')
    """
    given = dict(settings)
    kind = given.pop(KIND, LinearRegression.__name__)
    if kind not in MODELS:
        raise StorageError(
            f"a model of the kind {kind!r} is stored, and this Headrace has none such",
            way_out="open the location with the version that wrote it",
        )
    return MODELS[kind](**given)
