"""What `import headrace` gives: all that a user catches, annotates with or makes; and none of it set by accident."""

import inspect
import re
from pathlib import Path

import pytest

import headrace as hr
from headrace import errors
from headrace.engine.engine import Engine
from headrace.engine.handles import AnswerHandle, Finals, Table, View
from headrace.engine.matrix_chains import MatrixChain, SparseChain
from headrace.engine.model_handle import Model
from headrace.engine.models import Covariance
from headrace.engine.window_joins import WindowJoinView
from headrace.engine.window_streams import WindowJoinStream
from headrace.sources.updates import UpdateFile

HANDLES = (
    Engine,
    Table,
    AnswerHandle,
    View,
    WindowJoinView,
    WindowJoinStream,
    Finals,
    Covariance,
    Model,
    MatrixChain,
    SparseChain,
    UpdateFile,
)

SETTABLE = {"idle_after", "memory_budget"}  # with checks, and an effect at once


def test_every_name_is_there() -> None:
    for name in hr.__all__:
        assert getattr(hr, name) is not None
    assert set(hr.__all__) <= set(dir(hr))


def test_every_error_is_exported() -> None:
    found = {
        name for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, hr.HeadraceError)
    }
    assert len(found) > 10
    assert found <= set(hr.__all__)


@pytest.mark.parametrize("kind", HANDLES, ids=lambda kind: kind.__name__)
def test_no_attribute_of_a_handle_is_set_by_accident(kind: type) -> None:
    """Whatever a constructor assigns is private; what is public is a method, or a property without a setter."""
    assert not re.findall(r"self\.([a-z]\w*)(?:: [^=\n]+)? = ", inspect.getsource(kind))
    properties = {name: found for name, found in vars(kind).items() if isinstance(found, property)}
    assert all(found.fset is None for name, found in properties.items() if name not in SETTABLE)


def test_update_files_are_as_they_were_made() -> None:
    file = UpdateFile("some.tbl", batch=10)
    assert (file.path, file.batch) == (Path("some.tbl"), 10)
    with pytest.raises(AttributeError):
        file.batch = 20  # type: ignore[misc]
