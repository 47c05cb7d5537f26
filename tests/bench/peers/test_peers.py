from __future__ import annotations

import datetime
import itertools
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pytest

from headrace.bench import peers
from headrace.bench.peers import flink_tpch, pathway_tpch
from headrace.bench.peers.export import COLUMNS, export_flink, export_pathway
from headrace.datasets.batches import DIFF
from headrace.datasets.tpch import TPCH_SCHEMAS
from headrace.datasets.windows import POSITION
from headrace.errors import SchemaError

QUERIES = Path(__file__).parents[2] / "fixtures" / "tpch"
INSTALLED = peers.available()


def day(text: str) -> datetime.date:
    return datetime.date.fromisoformat(text)


def made(rows: int, table: str, **columns: Any) -> list[dict[str, Any]]:
    """Rows of a table; what is not given gets a value of its type, text with what text may hold."""
    usual = {"int64": 0, "int32": 0, "string": 'a, "b" |c', "date32[day]": day("1994-06-01")}
    plain = {field.name: usual.get(str(field.type), Decimal("1.00")) for field in TPCH_SCHEMAS[table].schema}
    return [plain | {name: value(n) for name, value in columns.items()} for n in range(rows)]


def small_stream() -> list[dict[str, pa.Table]]:
    """A few rows that every query keeps some of, in batches of 40, with deletions of every table but the nations.

    Some rows come before those that they refer to; one row is deleted and comes back; text has commas and quotes.
    """
    random = np.random.default_rng(5)

    def some(values: Sequence[Any]) -> Callable[[int], Any]:
        return lambda n: values[int(random.integers(len(values)))]

    nations = ["FRANCE", "GERMANY", "CHINA", "INDIA"]
    dates = [day(text) for text in ("1993-11-11", "1994-05-05", "1995-03-01", "1995-03-14", "1996-01-01")]
    tables = {
        "region": made(2, "region", r_regionkey=int, r_name=lambda n: ["EUROPE", "ASIA"][n]),
        "nation": made(4, "nation", n_nationkey=int, n_name=lambda n: nations[n], n_regionkey=lambda n: n // 2),
        "supplier": made(10, "supplier", s_suppkey=int, s_nationkey=some(range(4))),
        "customer": made(
            20,
            "customer",
            c_custkey=int,
            c_nationkey=some(range(4)),
            c_mktsegment=some(["BUILDING", "MACHINERY"]),
            c_acctbal=lambda n: Decimal(n * 111) / 100,
        ),
        "orders": made(120, "orders", o_orderkey=int, o_custkey=some(range(20)), o_orderdate=some(dates)),
        "lineitem": made(
            480,
            "lineitem",
            l_orderkey=lambda n: n // 4,
            l_linenumber=lambda n: n % 4,
            l_suppkey=some(range(10)),
            l_extendedprice=lambda n: Decimal(100_000 + n % 9 * 1_001) / 100,
            l_discount=lambda n: Decimal(n % 11) / 100,
            l_shipdate=some([*dates, day("1996-12-31"), day("1997-01-01")]),
            l_returnflag=some("RN"),
        ),
    }
    inserted = [(name, row, 1) for name, rows in tables.items() for row in rows]
    updates = [inserted[n] for n in random.permutation(len(inserted))]
    gone = [n for n in range(len(updates)) if updates[n][0] not in ("nation", "region") and n % 5 == 0]
    updates += [(updates[n][0], updates[n][1], -1) for n in gone] + [updates[gone[0]]]
    batches = []
    for start in range(0, len(updates), 40):
        batch: dict[str, pa.Table] = {}
        for name in tables:
            mine = [n for n in range(start, min(start + 40, len(updates))) if updates[n][0] == name]
            if mine:
                rows = pa.Table.from_pylist([updates[n][1] for n in mine], schema=TPCH_SCHEMAS[name].schema)
                rows = rows.append_column(DIFF, pa.array([updates[n][2] for n in mine], pa.int64()))
                batch[name] = rows.append_column(POSITION, pa.array(mine, pa.int64()))
        batches.append(batch)
    return batches


def expected(query: str, batches: list[dict[str, pa.Table]]) -> list[dict[str, Any]]:
    """DuckDB's answer over the rows that are left."""
    with duckdb.connect() as database:
        for name, spec in TPCH_SCHEMAS.items():
            changes = [batch[name] for batch in batches if name in batch]
            if changes:
                database.register("changes", pa.concat_tables(changes))
                columns = ", ".join(spec.schema.names)
                database.execute(
                    f"CREATE TABLE {name} AS SELECT {columns} FROM changes GROUP BY ALL HAVING sum({DIFF}) = 1"
                )
        text = (QUERIES / f"{query}.sql").read_text().partition("ORDER BY")[0]
        found = database.sql(text)
        rows = [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]
    return [{name: plain(value) for name, value in row.items()} for row in rows]


def plain(value: Any) -> Any:
    if isinstance(value, datetime.date):
        return value.isoformat()
    return float(value) if isinstance(value, Decimal) else value


def by_group(rows: list[dict[str, Any]]) -> Mapping[Any, float]:
    groups = {tuple(sorted((k, v) for k, v in row.items() if k != "revenue")): row["revenue"] for row in rows}
    assert len(groups) == len(rows)
    return groups


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Installs a peer `fake` that runs a given script in this Python."""
    binary = tmp_path / "peers" / "fake" / "bin" / "python"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\nexec '{sys.executable}' \"$@\"\n")
    binary.chmod(0o755)
    script = tmp_path / "fake.py"
    monkeypatch.setenv("HEADRACE_PEERS", str(tmp_path / "peers"))
    monkeypatch.setitem(peers.PEERS, "fake", peers.Peer("Fake", str(script), export_pathway))

    def run(text: str, **options: Any) -> dict[str, Any]:
        script.write_text(text)
        return peers.run_peer("fake", "q3", small_stream(), **options)

    return run


def test_no_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_PEERS", str(tmp_path))
    assert peers.available() == {}
    result = peers.run_peer("flink", "q3", [])
    assert result == {
        "system": "flink",
        "case": "q3",
        "failed": "Flink SQL is not installed; `make peers` installs it",
    }


def test_peers_are_found_here_or_where_the_variable_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, name in ((".peers", "flink"), ("elsewhere", "pathway")):
        python = tmp_path / folder / name / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADRACE_PEERS", raising=False)
    assert peers.available() == {"flink": tmp_path / ".peers" / "flink" / "bin" / "python"}
    monkeypatch.setenv("HEADRACE_PEERS", "elsewhere")
    assert peers.available() == {"pathway": tmp_path / "elsewhere" / "pathway" / "bin" / "python"}


ANSWERS = "import json, sys; json.dump({'seconds': 2.0, 'answer': [{'a': 1}]}, open(sys.argv[3], 'w'))"


def test_a_peer_that_answers(fake: Any) -> None:
    told: list[str] = []
    result = fake(ANSWERS, tell=told.append)
    rows = sum(table.num_rows for batch in small_stream() for name, table in batch.items() if name in COLUMNS["q3"])
    del result["peak_mb"]  # of a process that is gone at once, whatever was seen of it
    assert result == {
        "system": "fake",
        "case": "q3",
        "rows": rows,
        "seconds": 2.0,
        "rows_per_s": rows / 2,
        "answer": [{"a": 1}],
    }
    assert told == ["Fake: writing its input", f"Fake: q3 over {rows} changes"]


def test_a_peer_reads_a_folder_that_was_written_before(fake: Any, tmp_path: Path) -> None:
    rows = export_pathway("q3", small_stream(), tmp_path / "stream")
    (tmp_path / "fake.py").write_text(ANSWERS)
    assert peers.run_peer("fake", "q3", tmp_path / "stream")["rows"] == rows
    assert "No such file" in peers.run_peer("fake", "q3", tmp_path / "nothing")["failed"]


def test_a_peer_sees_nothing_of_headrace(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "somewhere")
    monkeypatch.setenv("FLINK_HOME", "somewhere")
    text = (
        "import os, sys; sys.exit(f\"{sorted(set(os.environ) & {'PYTHONPATH', 'FLINK_HOME'})}, {sys.flags.isolated}\")"
    )
    assert fake(text)["failed"] == "ended with exit code 1: [], 1"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise ValueError('no luck')", r"exit code 1: (.|\n)*ValueError: no luck"),
        ("import os; os._exit(3)", "exit code 3: it said nothing"),
        ("import json, sys; json.dump({'failed': 'out of tricks'}, open(sys.argv[3], 'w'))", "^out of tricks$"),
        ("import sys; open(sys.argv[3], 'w').write('{')", "Expecting property name"),
    ],
)
def test_a_peer_that_fails_is_a_result(fake: Any, text: str, reason: str) -> None:
    result = fake(text)
    assert "seconds" not in result
    assert re.search(reason, result["failed"])


def test_a_peer_that_hangs_is_ended_with_all_that_it_started(fake: Any, tmp_path: Path) -> None:
    note = tmp_path / "child"
    text = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(100)'])\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))\n"
        "held = bytearray(b'x' * 50_000_000)\n"
        "time.sleep(100)\n"
    )
    start = time.monotonic()
    result = fake(text, time_limit=3)
    assert result["failed"] == "was not done after 3 s"
    assert time.monotonic() - start < 30
    child = int(note.read_text())
    for _ in range(100):  # a killed orphan is there until someone takes its exit code
        status = Path(f"/proc/{child}/stat")
        if not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.05)
    else:
        pytest.fail("the child outlived its parent")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="memory is read from /proc")
def test_memory_of_a_peer_counts_what_it_starts(fake: Any) -> None:
    child = "held = bytearray(b'x' * 80_000_000); import time; time.sleep(1)"
    text = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], check=True)\n{ANSWERS}"
    assert 80 < fake(text)["peak_mb"] < 300


def test_bad_changes_are_a_result(fake: Any, tmp_path: Path) -> None:
    batches = small_stream()
    with pytest.raises(SchemaError, match="'orders' have no column 'o_custkey', which q3 needs"):
        export_flink("q3", [{"orders": batches[0]["orders"].drop_columns("o_custkey")}], tmp_path / "never")
    twice = batches[0]["orders"].drop_columns(DIFF).append_column(DIFF, pa.array([2] * batches[0]["orders"].num_rows))
    assert "other than 1 and -1" in peers.run_peer("fake", "q3", [{"orders": twice}])["failed"]


@pytest.mark.parametrize("query", peers.QUERIES)
@pytest.mark.parametrize("placed", [True, False])
def test_text_for_flink_holds_the_stream(query: str, placed: bool, tmp_path: Path) -> None:
    batches = small_stream()
    if not placed:
        batches = [{name: table.drop_columns(POSITION) for name, table in batch.items()} for batch in batches]
    rows = export_flink(query, batches, tmp_path)
    manifest = json.loads((tmp_path / "stream.json").read_text())
    columns = [column for names in manifest["tables"].values() for column in names]
    options = csv.ReadOptions(column_names=["table", "diff", *columns])
    types = {field.name: field.type for spec in TPCH_SCHEMAS.values() for field in spec.schema}
    lines = csv.read_csv(
        tmp_path / "changes.csv",
        read_options=options,
        convert_options=csv.ConvertOptions(column_types={name: types[name] for name in columns}),
    )
    assert lines.num_rows == rows == manifest["rows"]
    assert (tmp_path / "warm.csv").read_bytes() == (tmp_path / "changes.csv").read_bytes()
    for number, (name, names) in enumerate(manifest["tables"].items()):
        mine = lines.filter(pc.equal(lines["table"], number))
        written = pa.concat_tables(batch[name] for batch in batches if name in batch)
        assert mine.select(names).to_pylist() == written.select(names).to_pylist()
        assert mine["diff"].to_pylist() == written[DIFF].to_pylist()
    if placed:
        owners = list(manifest["tables"])
        updates = [
            (position, name)
            for batch in batches
            for name, table in batch.items()
            if name in owners
            for position in table[POSITION].to_pylist()
        ]
        assert [owners[number] for number in lines["table"].to_pylist()] == [name for _, name in sorted(updates)]


def test_arrow_for_pathway_holds_the_stream_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.bench.peers.export.PATHWAY_PIECE", 15)
    batches = small_stream()
    assert export_pathway("q10", batches, tmp_path) == json.loads((tmp_path / "stream.json").read_text())["rows"]
    manifest = json.loads((tmp_path / "stream.json").read_text())
    last_of_piece: dict[int, int] = {}
    first_of_piece: dict[int, int] = {}
    for name, columns in COLUMNS["q10"].items():
        with pa.OSFile(str(tmp_path / f"{name}.arrow")) as opened:
            file = pa.ipc.open_file(opened)
            parts = [pa.table(file.get_batch(n)) for n in range(file.num_record_batches)]
        assert len(parts) == len(manifest["pieces"][name])
        assert manifest["pieces"][name] == sorted(set(manifest["pieces"][name]))
        read, written = pa.concat_tables(parts), pa.concat_tables(batch[name] for batch in batches if name in batch)
        assert read[DIFF].to_pylist() == written[DIFF].to_pylist()
        for column in columns:
            values = [pathway_form(value) for value in written[column].to_pylist()]
            assert read[column].to_pylist() == values, column
        positions = iter(written[POSITION].to_pylist())
        for piece, part in zip(manifest["pieces"][name], parts, strict=True):
            for position in (next(positions) for _ in range(part.num_rows)):
                last_of_piece[piece] = max(position, last_of_piece.get(piece, position))
                first_of_piece[piece] = min(position, first_of_piece.get(piece, position))
    in_order = sorted(last_of_piece)
    assert len(in_order) > len(batches)
    assert all(last_of_piece[before] < first_of_piece[after] for before, after in itertools.pairwise(in_order))


def pathway_form(value: Any) -> Any:
    if isinstance(value, datetime.date):
        return (value - day("1970-01-01")).days
    return int(value * 100) if isinstance(value, Decimal) else value


def test_readers_of_pathway_keep_in_step() -> None:
    pieces = {"orders": [0, 1, 3], "lineitem": [0, 2, 3, 5], "region": []}
    step, seen = pathway_tpch.Lockstep(pieces), []

    def read(name: str) -> None:
        for number in step.turns(name):
            seen.append(pieces[name][number])
            time.sleep(0.001)

    threads = [threading.Thread(target=read, args=(name,), daemon=True) for name in pieces]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert seen == sorted(seen)
    assert len(seen) == 7


def test_a_changelog_of_flink_is_folded() -> None:
    def change(before: Any, after: Any) -> str:
        return json.dumps({"before": before, "after": after, "op": "c" if before is None else "d"})

    one, two, other = {"k": 2, "revenue": 1.5}, {"k": 2, "revenue": 2.5}, {"k": 1, "revenue": 0.5}
    lines = [change(one, None), change(None, one), change(None, two), change(None, other)]
    assert flink_tpch.folded(lines) == [other, two]
    with pytest.raises(RuntimeError, match="never sent"):
        flink_tpch.folded([change(one, None)])


def test_the_queries_are_those_of_the_fixtures() -> None:
    """Flink's are the same text but for the end, so that nobody is measured on another question."""
    assert set(flink_tpch.QUERIES) == set(flink_tpch.ANSWERS) == set(pathway_tpch.QUERIES) == set(peers.QUERIES)
    for name, text in flink_tpch.QUERIES.items():
        standard = (QUERIES / f"{name}.sql").read_text().partition("ORDER BY")[0]
        assert " ".join(text.lower().split()) == " ".join(standard.lower().split())


# Flink takes 10 seconds and more to start: it gets the query with most text, and the benchmark checks the others.
@pytest.mark.parametrize(("name", "query"), [*(("pathway", query) for query in peers.QUERIES), ("flink", "q10")])
def test_a_peer_answers_as_duckdb_does(name: str, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name not in INSTALLED:
        pytest.skip(f"{name} is not installed; `make peers` installs it")
    monkeypatch.setenv("HEADRACE_PEERS", str(INSTALLED[name].parent.parent.parent))
    batches = small_stream()
    result = peers.run_peer(name, query, batches, time_limit=200)
    assert "failed" not in result, result["failed"]
    wanted = by_group(expected(query, batches))
    assert len(wanted) > 1
    assert by_group(result["answer"]) == {group: pytest.approx(revenue) for group, revenue in wanted.items()}
