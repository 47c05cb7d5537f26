"""The support matrix of the docs, made from the tests: what is claimed there is what is checked here.

python -m tests.logic.matrix          # writes docs/support.md
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.logic.case_file import FOLDER

PAGE = Path(__file__).parents[2] / "docs" / "support.md"

_HEAD = """# What SQL is kept fresh

This page is generated from the tests (`python -m tests.logic.matrix`), and a test compares the two. Each line is a file
of `tests/logic/cases`: small tables, a few steps of insertions and deletions, and statements with the answers computed
by Spark. Every statement is a view with `strategy="operators"` that has to be right after every step. Besides them, all
22 queries of TPC-H are checked after every step of streams that change all its tables, and so are random queries.

| theme | statements | what is checked |
|---|---|---|
"""
_REFUSED = """
## What is refused

A statement that no view can keep is refused when the view is created, with what it is, why, and a way out;
`refresh="full"` has Spark run most of them at every step instead.

| statement | the refusal says |
|---|---|
"""
_STATEMENT = re.compile(r"^(query|refused|fails) (\w+).*$", re.MULTILINE)
_REFUSAL = re.compile(r"^refused \w+\n((?:  .*\n)+)((?:says: .*\n?)+)", re.MULTILINE)


def page() -> str:
    """The page as the case files have it."""
    lines, refused = [], []
    for file in sorted(FOLDER.glob("*.test")):
        text = file.read_text()
        kinds = [kind for kind, _ in _STATEMENT.findall(text)]
        kept = sum(kind == "query" for kind in kinds)
        if kept > 1:
            said = text.splitlines()[0].removeprefix("# ")
            lines.append(f"| {file.stem.replace('_', ' ')} | {kept} | {said} |")
        for statement, says in _REFUSAL.findall(text):
            sql = " ".join(statement.split()).replace("|", "\\|")
            words = ", ".join(line.removeprefix("says: ") for line in says.splitlines())
            refused.append(f"| `{sql}` | {words} |")
    total = sum(int(line.split(" | ")[1]) for line in lines)
    lines.append(f"| **all** | **{total}** | |")
    return _HEAD + "\n".join(lines) + "\n" + _REFUSED + "\n".join(refused) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
