"""What is compiled beforehand is what first steps call, and beginning with it breaks nothing."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.forks import Forks

from headrace.engine import compiling
from headrace.engine.compiling import compile_kernels
from headrace.engine.meanwhile import Meanwhile

# Which loops Python has called, with which types, before and after the first steps of the README.
PROGRAM = """
import sys

import pandas as pd
from numba.core.registry import CPUDispatcher

import headrace as hr
from headrace.engine.compiling import compile_kernels

def called():
    modules = [module for name, module in sys.modules.items() if name.startswith("headrace")]
    loops = [loop for module in modules for loop in vars(module).values() if isinstance(loop, CPUDispatcher)]
    return {f"{loop.py_func.__qualname__}{types}" for loop in loops for types in loop.signatures}

compile_kernels()
compiled = called()
with hr.connect("shop", buckets=4) as engine:
    engine.table("orders", "id BIGINT, shop STRING, amount DECIMAL(10,2)", key="id")
    view = engine.view("by_shop", "SELECT shop, COUNT(*), SUM(amount) AS s FROM orders GROUP BY shop ORDER BY shop")
    new = pd.DataFrame({"id": [1, 2, 3], "shop": ["Bergen", "Cork", "Cork"], "amount": [20, 5, 4]})
    engine.apply({"orders": new})
    rows = [(1, "Bergen", 20, -1), (1, "Bergen", 25, +1), (3, "Cork", 4, -1)]
    engine.apply({"orders": pd.DataFrame(rows, columns=["id", "shop", "amount", "__diff"])})
    assert view.to_arrow().num_rows == 2
    engine.table("shops", "shop STRING, area DOUBLE", key="shop")
    join = "SELECT amount, area FROM orders NATURAL JOIN shops"
    engine.model("amounts", hr.LinearRegression(label="amount"), over=join)
    engine.apply({"shops": pd.DataFrame({"shop": ["Bergen", "Cork"], "area": [120.0, 80.0]})})
print(len(compiled) > 20, sorted(called() - compiled))
"""


def test_the_first_steps_of_the_readme_compile_nothing(forks: Forks, tmp_path: Path) -> None:
    done = forks.run("-c", PROGRAM, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "True []"


def test_compiling_stops_between_steps() -> None:
    asked = []

    def stopped() -> bool:
        asked.append(True)
        return True

    compile_kernels(stopped)
    assert len(asked) == 2, "once per view"


def test_what_goes_wrong_meanwhile_is_left_to_whoever_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Event()

    def fail(stopped: object) -> None:
        begun.set()
        raise OSError("no space left on device")

    monkeypatch.setattr(compiling, "compile_kernels", fail)
    meanwhile = Meanwhile()
    meanwhile.start()
    meanwhile.stop()
    assert begun.is_set()
