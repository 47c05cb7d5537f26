"""What answers are compared with shares no code with what gives them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ORACLES = (
    "src/headrace/testing/oracle.py",
    "tests/logic/case_file.py",
    "tests/logic/expect.py",
    "tests/logic/random_cases.py",
    "tests/logic/random_queries.py",
    "tests/logic/values.py",
    "tests/tpch/oracles.py",
    "tests/tpch/queries.py",
)
# The oracle itself; and generated data and the text of queries, which are what is asked and not what answers.
ALLOWED = {"headrace.testing.oracle", "headrace.datasets"}


def imported(path: Path) -> set[str]:
    """The modules that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            found.add(str(node.module))
    return found


@pytest.mark.parametrize("path", ORACLES)
def test_an_oracle_imports_nothing_of_the_package(path: str) -> None:
    todo, seen = [ROOT / path], set()
    while todo:
        here = todo.pop()
        for module in imported(here) - seen:
            seen.add(module)
            if module.startswith("tests."):
                todo.append(ROOT / f"{module.replace('.', '/')}.py")
    assert {module for module in seen if module.split(".")[0] == "headrace"} <= ALLOWED
