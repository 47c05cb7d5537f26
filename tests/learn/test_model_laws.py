"""Every registered model obeys every law of models."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.seeds import drawn

from headrace.learn.learner import Learner
from headrace.learn.registry import MODELS
from headrace.testing.models import EXAMPLES, model_laws

ALL = {f"{model!r}: {law.__name__}": (law, model) for law, model in model_laws()}


@pytest.mark.parametrize(("law", "model"), ALL.values(), ids=list(ALL))
def test_laws(law: Callable[[Learner, int], None], model: Learner) -> None:
    for seed in drawn("model laws", 3):
        law(model, seed)


def test_every_registered_model_has_examples() -> None:
    assert set(MODELS) <= set(EXAMPLES)
    for kind, registered in MODELS.items():
        assert all(type(model) is registered for model in EXAMPLES[kind])
