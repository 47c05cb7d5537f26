"""The README and the docs say what is true: their programs run and print what they show, commands and links exist."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import pytest
from tests.forks import Forks
from typer.testing import CliRunner

from headrace.cli.main import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS = [
    ROOT / "README.md",
    *(
        ROOT / "docs" / f"{page}.md"
        for page in (
            *("tutorial", "models", "joins", "foreign-keys", "fresh", "testing", "update-streams", "windows"),
            *(
                "window-joins",
                "changes",
                "goals",
                "sharing",
                "memory",
                "factorized",
                "feature-selection",
                "graphs",
                "matrices",
                "products",
                "rings",
            ),
        )
    ),
]
# One page starts a JVM, as whoever tries it does, and one has streams, whose batches a JVM gives to one process only.
ALONE = ("README.md", "tutorial.md")
MARK = "\x1e"
# A JVM that lives for seconds spends most of them compiling; the quick compiler nearly halves these tests.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`((?:headrace|make) [^`]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
# What differs from run to run (times, sizes) or from machine to machine (buckets, hence how runs are spread).
_VARIES = re.compile(r"[\d,.]+(?= (?:ms|bytes|entries|runs|buckets|a live row)\b)")
# The same in the table of a view tree: entries and bytes stand before who reads the view, in columns as wide as they.
_TREE = re.compile(r"^( +)(view  .*|[VH]_\S*.*)$", re.MULTILINE)
_SIZES = re.compile(r"( kept(?: once)? [\d,]+) [\d,]+ [\d,]+ ")
# And in the table of a foreign-key join's arrangements: entries, runs and bytes stand before what each holds.
_ARRANGEMENTS = re.compile(r"^( {4}\S.*?) +(?:[\d,]+ +[\d,]+ +[\d,]+|entries +runs +bytes)  (holds$|\()", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the output block that directly follows it."""

    language: str
    text: str
    output: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    found = list(_BLOCK.finditer(text))
    out = []
    for block, following in zip_longest(found, found[1:]):
        follows = following is not None and following[1] == "text" and not text[block.end() : following.start()].strip()
        out.append(Block(block[1], block[2], following[2] if follows and following is not None else ""))
    return out


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def run_program(program: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT / "src")]))
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path, "JAVA_TOOL_OPTIONS": QUICK_JVM},
        capture_output=True,
        text=True,
        timeout=240,
    )


def normalised(output: str) -> str:
    output = _TREE.sub(lambda line: line[1] + _SIZES.sub(r"\1 # # ", " ".join(line[2].split())), output)
    output = _ARRANGEMENTS.sub(r"\1 # # # \2", output)
    output = output.replace("\n" + " " * 13, " ")  # where a line of a report is broken depends on the numbers in it
    lines = [line.rstrip() for line in _VARIES.sub("#", output).splitlines()]
    return "\n".join(lines).strip("\n")


@pytest.mark.parametrize("page", PROGRAMS, ids=named)
def test_the_programs_of_a_page_print_what_it_shows(page: Path, tmp_path: Path, forks: Forks) -> None:
    parts = [block for block in blocks(page) if block.language == "python"]
    program = "".join(f"{part.text}print({MARK!r})\n" for part in parts)
    done = run_program(program, tmp_path) if page.name in ALONE else forks.run("-c", program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    printed = done.stdout.split(f"{MARK}\n")
    assert [normalised(text) for text in printed[:-1]] == [normalised(part.output) for part in parts]


def test_the_example_of_the_readme_is_short() -> None:
    example = next(block for block in blocks(ROOT / "README.md") if block.language == "python")
    statements = [line for line in example.text.splitlines() if line and not line.startswith("#")]
    assert len(statements) <= 15


def commands() -> list[tuple[str, ...]]:
    """Every command line that some page names."""
    found = set()
    for page in PAGES:
        for block in blocks(page):
            if block.language == "sh":
                found |= {line for line in block.text.splitlines() if line.startswith(("headrace ", "make "))}
        found |= set(_INLINE.findall(_BLOCK.sub("", page.read_text())))
    return sorted(tuple(shlex.split(line, comments=True)) for line in found)


@pytest.mark.parametrize("command", [c for c in commands() if c[0] == "headrace"], ids=" ".join)
def test_commands_of_the_pages_exist(command: tuple[str, ...]) -> None:
    own = command[1 : command.index("--")] if "--" in command else command[1:]
    words = [word for word in own if not word.startswith("-")]
    shown = CliRunner().invoke(app, [*words[:1], "--help"], env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    assert shown.exit_code == 0, shown.output
    known = shown.output + (benchmark_options(words[1]) if words[:1] == ["bench"] and words[1:] else "")
    for option in (word for word in own if word.startswith("--")):
        assert option in known, f"{' '.join(command)}: no option {option}"


def benchmark_options(name: str) -> str:
    """What a benchmark says of its own options; no Spark is started for that."""
    shown = CliRunner().invoke(app, ["bench", name, "--", "--help"])
    assert shown.exit_code == 0, shown.output
    return shown.output


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
@pytest.mark.parametrize("command", [c for c in commands() if c[0] == "make"], ids=" ".join)
def test_targets_of_the_pages_exist(command: tuple[str, ...]) -> None:
    done = subprocess.run(["make", "-n", *command[1:]], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(_BLOCK.sub("", page.read_text())):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{named(page)} links to {link}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", _BLOCK.sub("", target.read_text()), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_docs_show_the_pipeline_of_the_examples() -> None:
    shown = [block.text for block in blocks(ROOT / "docs" / "pipelines.md") if block.language == "sql"]
    assert shown[0] == (ROOT / "examples" / "pipeline" / "sales.sql").read_text()
