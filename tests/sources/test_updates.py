"""Files of updates: what is written is read back, bad lines are named, and a replay counts every line once."""

from __future__ import annotations

import os
import random
import signal
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from tests.forks import Forks

import headrace as hr
from headrace.datasets import TPCH_SCHEMAS, TableSpec, Updates, fifo_updates, tpch_tables
from headrace.errors import BadRowsError, HeadraceError, SchemaError, StorageError
from headrace.sources import TPCH_CODES, UpdateFile, update_reader, updates, write_updates
from headrace.testing.oracle import assert_same

CHILD = Path(__file__).parent / "replay_child.py"
_spec = spec_from_file_location("replay_child", CHILD)
assert _spec is not None
assert _spec.loader is not None
child = module_from_spec(_spec)
_spec.loader.exec_module(child)

WINDOW = 400
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string()), ("price", pa.float64())])
SHOP = {"schemas": {"shop": SCHEMA}, "codes": {"SH": "shop"}}


@pytest.fixture(scope="module")
def tpch() -> dict[str, pa.Table]:
    return tpch_tables(0.001)


@pytest.fixture(scope="module")
def window(tpch: dict[str, pa.Table]) -> Updates:
    return fifo_updates(tpch, WINDOW, shuffle=2)


@pytest.fixture(scope="module")
def file(window: Updates, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("updates") / "updates.txt"
    assert write_updates(path, window.batches(3_000, positions=True)) == path.stat().st_size
    return path


def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every way of cutting a file happen on a small one."""
    monkeypatch.setattr(updates, "_BLOCK", 50)
    monkeypatch.setattr(updates, "_TOGETHER", 6)
    monkeypatch.setattr(update_reader, "_PIECE", 4)
    monkeypatch.setattr(update_reader, "_SMALL", 300)


# -- reading and writing --------------------------------------------------------------------------------------------


def test_the_lines_of_a_file_are_its_sequence(file: Path, window: Updates) -> None:
    places = [(name, row) for name, table in window.tables.items() for row in range(table.num_rows)]
    rows = {name: table.to_pylist() for name, table in window.tables.items()}
    codes = {table: code for code, table in TPCH_CODES.items()}
    expected = []
    for number in window.sequence.tolist():
        name, row = places[abs(number) - 1]
        expected.append(("+" if number > 0 else "-") + codes[name] + "|".join(map(str, rows[name][row].values())))
    assert file.read_text().splitlines() == expected
    assert expected[-1][:3] in ("+LI", "-LI", "-OR")


@pytest.mark.parametrize("batch", [7, 1_000, 20_000, 1_000_000])
def test_what_was_written_is_read_back(file: Path, window: Updates, batch: int) -> None:
    found = list(UpdateFile(file, batch=batch))
    assert found == list(window.batches(batch))
    for changes in found:
        for name, table in changes.items():
            assert table.drop_columns(["__diff"]).schema.equals(TPCH_SCHEMAS[name].schema)


def test_however_a_file_is_cut(file: Path, window: Updates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = tmp_path / "part.txt"
    lines = file.read_bytes().splitlines(keepends=True)
    part.write_bytes(b"".join(lines[-100:]).rstrip(b"\n"))
    whole = list(UpdateFile(part, batch=1_000))
    assert sum(map(len, whole[0].values())) == 100
    small_pieces(monkeypatch)
    for batch in (1, 3, 5, 6, 7, 40, 99, 100, 101):
        batches = list(UpdateFile(part, batch=batch).batches())
        assert [number for number, _ in batches] == [*range(batch, 100, batch), 100]
        for name, rows in whole[0].items():
            assert pa.concat_tables([changes[name] for _, changes in batches if name in changes]) == rows
        for skip in (0, 1, 5, 6, 64, 98, 99, 100):
            rest = list(UpdateFile(part, batch=batch).batches(skip))
            assert [number for number, _ in rest] == [*range(skip + batch, 100, batch), *([100] if skip < 100 else [])]
            assert sum(len(rows) for _, changes in rest for rows in changes.values()) == 100 - skip


FIELDS = {
    pa.int64(): (st.integers(-(2**63), 2**63 - 1), int),
    pa.int8(): (st.integers(-128, 127), int),
    pa.float64(): (st.floats(allow_nan=False), float),
    pa.decimal128(15, 2): (st.decimals(Decimal("-1e12"), Decimal("1e12"), places=2), Decimal),
    pa.date32(): (st.dates(), date.fromisoformat),
    pa.bool_(): (st.booleans(), lambda text: text == "true"),
    pa.timestamp("us"): (st.datetimes(), datetime.fromisoformat),
    pa.timestamp("us", tz="UTC"): (st.datetimes(timezones=st.just(UTC)), datetime.fromisoformat),
    pa.string(): (st.text(st.characters(exclude_characters="|\r\n", codec="utf-8"), min_size=1), str),
}


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_rows_of_any_type_survive(data, tmp_path_factory: pytest.TempPathFactory) -> None:
    kinds = data.draw(st.lists(st.tuples(st.sampled_from(list(FIELDS)), st.booleans()), min_size=1, max_size=5))
    schema = pa.schema([pa.field(f"c{i}", kind, nullable) for i, (kind, nullable) in enumerate(kinds)])
    values = [FIELDS[kind][0] | st.none() if nullable else FIELDS[kind][0] for kind, nullable in kinds]
    rows = data.draw(st.lists(st.tuples(*values), min_size=1, max_size=6))
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
    diff = data.draw(st.lists(st.sampled_from([-1, 1]), min_size=len(rows), max_size=len(rows)))
    changes = pa.table([*columns, pa.array(diff)], schema=schema.append(pa.field("__diff", pa.int64())))
    path = tmp_path_factory.mktemp("any") / "updates.txt"
    form = {"schemas": {"t": schema}, "codes": {"TT": "t"}}
    write_updates(path, [{"t": changes}], **form)
    (found,) = UpdateFile(path, **form)
    assert found == {"t": changes}
    # And by hand, so that reader and writer are not wrong together.
    for line, row, sign in zip(path.read_bytes().decode().split("\n"), rows, diff, strict=False):
        assert line[:3] == ("+TT" if sign > 0 else "-TT")
        texts = zip(line[3:].split("|"), kinds, strict=True)
        assert tuple(FIELDS[kind][1](text) if text else None for text, (kind, _) in texts) == row


def test_a_bar_may_end_a_line(tmp_path: Path) -> None:
    path = tmp_path / "u.txt"
    path.write_text("+SH1|a|0.5|\n-SH2||\n+SH3|||\n+SH4|d|\n")
    (changes,) = UpdateFile(path, **SHOP)
    assert changes["shop"].to_pylist() == [
        {"id": 1, "name": "a", "price": 0.5, "__diff": 1},
        {"id": 2, "name": None, "price": None, "__diff": -1},
        {"id": 3, "name": None, "price": None, "__diff": 1},
        {"id": 4, "name": "d", "price": None, "__diff": 1},
    ]


def test_texts_are_taken_as_they_are(tmp_path: Path) -> None:
    names = ['"quoted"', "it's", "a,b", "back\\slash", "\\n", "NULL", "NaN", " spaces ", "tab\there", "+SH1", "\ufeffx"]
    names += ["\0", "ä€𝄞", "\u2028", "\x85", "#", "-"]
    changes = pa.table({"id": range(len(names)), "name": names, "price": pa.nulls(len(names), pa.float64())}, SCHEMA)
    path = tmp_path / "u.txt"
    write_updates(path, [{"shop": changes}], **SHOP)
    (found,) = UpdateFile(path, **SHOP)
    assert found["shop"].drop_columns(["__diff"]) == changes


def test_an_empty_text_where_none_may_be_null(tmp_path: Path) -> None:
    form = {"schemas": {"t": TableSpec("t", "a STRING NOT NULL, b STRING NOT NULL")}, "codes": {"TT": "t"}}
    path = tmp_path / "u.txt"
    write_updates(path, [{"t": pa.table({"a": ["", "x"], "b": ["y", ""]})}], **form)
    assert path.read_text() == "+TT|y\n+TTx|\n"
    (found,) = UpdateFile(path, **form)
    assert found["t"].to_pydict() == {"a": ["", "x"], "b": ["y", ""], "__diff": [1, 1]}


def test_multiplicities_become_lines(tmp_path: Path) -> None:
    path = tmp_path / "u.txt"
    rows = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"], "price": [1.0, 2.0, 3.0]}, SCHEMA)
    changes = rows.append_column("__diff", pa.array([2, 0, -1])).append_column("__position", pa.array([5, 4, 3]))
    write_updates(path, [{"shop": changes}, {}, {"shop": changes.drop_columns(["__position"])}], **SHOP)
    assert path.read_text() == "-SH3|c|3\n+SH1|a|1\n+SH1|a|1\n+SH1|a|1\n+SH1|a|1\n-SH3|c|3\n"


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "u.txt").touch()
    assert list(UpdateFile(tmp_path / "u.txt")) == []


# -- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "what", "way_out"),
    [
        ("SH1|a|2", "the line begins with neither + nor -", "+CO or -CO"),
        ("*SH1|a|2", "neither + nor -", "+CO"),
        ("", "too short", "+CO"),
        ("+S", "too short", "+CO"),
        ("+XX1|a|2", "the header names no table", "known are SH shop"),
        ("+sh1|a|2", "names no table", "codes="),
        ("+SH1|a", "2 fields given, shop has 3", "id, name, price"),
        ("+SH1|a|2|3", "4 fields given, shop has 3", "no field may hold a |"),
        ("+SH1|a|2||", "5 fields given, shop has 3", "id, name, price"),
        ("+SHx|a|2", "column id of shop: 'x' is not BIGINT", "correct the line"),
        ("+SH1.5|a|2", "column id of shop: '1.5' is not BIGINT", "correct"),
        ("+SH99999999999999999999|a|2", "is not BIGINT", "correct"),
        ("+SH1|a|two", "column price of shop: 'two' is not DOUBLE", "correct"),
        ("+SH|a|2", "column id of shop is empty", "NOT NULL"),
        ("+SH1|\udcff|2", "column name of shop: '\\\\xff' is not UTF-8 text", "correct"),
        ("+SH1|a|2\r", "there is a carriage return", "line feed only"),
        ("+SH1|a\rb|2", "there is a carriage return", "line feed only"),
    ],
)
def test_a_bad_line_is_named(line: str, what: str, way_out: str, tmp_path: Path) -> None:
    path = tmp_path / "u.txt"
    lines = [f"+SH{number}|good|1.5" for number in range(40_000)]
    lines[33_333] = line
    path.write_bytes("\n".join(lines).encode(errors="surrogateescape"))
    found = UpdateFile(path, batch=10_000, **SHOP).batches()
    assert [next(found)[0] for _ in range(3)] == [10_000, 20_000, 30_000], "the batches before it are fine"
    with pytest.raises(BadRowsError) as caught:
        next(found)
    assert f"{path}, line 33334: " in caught.value.what
    assert what in caught.value.what
    assert caught.value.what.endswith("\n    " + repr(line.replace("\udcff", "\\xff"))[1:-1])
    assert way_out in caught.value.way_out


def test_only_the_beginning_of_a_long_line_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "u.txt"
    path.write_text("+SHx|" + "€" * 10_000 + "|1\n")
    with pytest.raises(BadRowsError) as caught:
        list(UpdateFile(path, **SHOP))
    assert caught.value.what.endswith("\n    +SHx|" + "€" * 75 + "...")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"name": ["a|b"]}, "column 'name' has a text with a | or a line's end in it"),
        ({"name": ["a\nb"]}, "line's end"),
        ({"name": ["a\rb"]}, "line's end"),
        ({"name": [""]}, "an empty text, which would be read as NULL"),
        ({"id": pa.array([None], pa.int64())}, "column 'id' has NULL"),
        ({"id": ["x"]}, "column 'id': string given, int64 wanted"),
        ({"price": None}, "has no column price"),
    ],
)
def test_what_could_not_be_read_back_is_not_written(columns: dict, message: str, tmp_path: Path) -> None:
    given = {"id": [1], "name": ["a"], "price": [1.0]} | columns
    changes = pa.table({name: values for name, values in given.items() if values is not None})
    path = tmp_path / "u.txt"
    path.write_text("what was there")
    with pytest.raises(BadRowsError, match=message.replace("|", r"\|")) as caught:
        write_updates(path, [{"shop": changes}], **SHOP)
    assert caught.value.way_out
    assert path.read_text() == "what was there"
    assert [found.name for found in tmp_path.iterdir()] == ["u.txt"]


def test_definitions_that_cannot_be_right(tmp_path: Path) -> None:
    path = tmp_path / "u.txt"
    for schemas, codes, message in (
        ({"shop": SCHEMA}, None, "table 'shop' has no code"),
        ({"shop": SCHEMA}, {"SH": "shop", "SO": "shop"}, "or several"),
        ({"shop": SCHEMA}, {"SHO": "shop"}, "'SHO' is not a code of two letters"),
        ({"shop": SCHEMA}, {"S|": "shop"}, "not a code"),
        ({"shop": SCHEMA}, {"S\n": "shop"}, "not a code"),
        ({"shop": pa.schema([("x", pa.binary())])}, {"SH": "shop"}, "is not supported"),
    ):
        with pytest.raises(SchemaError, match=message):
            UpdateFile(path, schemas, codes=codes)
    with pytest.raises(SchemaError, match="a batch of 0"):
        UpdateFile(path, batch=0)
    with pytest.raises(SchemaError, match="table 'u' has no schema"):
        write_updates(path, [{"u": pa.table({"x": [1]})}])


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be read: No such file"):
        list(UpdateFile(tmp_path / "none.txt"))
    with pytest.raises(StorageError, match="cannot be read: Is a directory"):
        list(UpdateFile(tmp_path))
    with pytest.raises(StorageError, match="cannot be written: No such file"):
        write_updates(tmp_path / "no" / "folder.txt", [])
    (tmp_path / "short.txt").write_text("+SH1|a|1\n+SH2|b|2")
    assert list(UpdateFile(tmp_path / "short.txt", **SHOP).batches(skip=2)) == []
    with pytest.raises(StorageError, match="has 1 lines, of which 3 are to be skipped"):
        list(UpdateFile(tmp_path / "short.txt", **SHOP).batches(skip=3))


# -- replaying ------------------------------------------------------------------------------------------------------


def check(engine: hr.Engine, window: Updates, lines: int) -> None:
    """The tables and views are those after so many lines, by DuckDB's account."""
    (everything,) = Updates(window.tables, window.sequence[:lines]).batches(lines)
    with duckdb.connect() as connection:
        for name, spec in TPCH_SCHEMAS.items():
            columns = ", ".join(spec.schema.names)
            changes = everything.get(name, spec.schema.empty_table().append_column("__diff", pa.array([], pa.int64())))
            connection.register(f"{name}_changes", changes)
            connection.execute(
                f"CREATE TABLE {name} AS SELECT {columns} FROM {name}_changes GROUP BY ALL HAVING SUM(__diff) = 1"
            )
            assert_same(engine.tables[name].to_arrow(), connection.table(name).to_arrow_table())
        for name, sql in child.VIEWS.items():
            assert_same(engine.views[name].to_arrow(), connection.sql(sql).to_arrow_table())


def test_a_replay_goes_on_where_it_was(file: Path, window: Updates, spark: SparkSession, tmp_path: Path) -> None:
    growing = tmp_path / "growing.txt"
    lines = file.read_bytes().splitlines(keepends=True)
    growing.write_bytes(b"".join(lines[:8_000]))
    with child.open_engine(spark, tmp_path / "state") as engine:
        steps = []
        for step in UpdateFile(growing, batch=900).replay(engine):
            steps.append(step)
            if len(steps) == 3:
                break
        assert [sum(step.rows.values()) for step in steps] == [900] * 3
        check(engine, window, 2_700)
    with child.open_engine(spark, tmp_path / "state") as engine:
        # Another size of batch, and a file that has grown after its last batch was a short one.
        steps = list(UpdateFile(growing, batch=4_000).replay(engine))
        assert [sum(step.rows.values()) for step in steps] == [4_000, 1_300]
        assert list(UpdateFile(growing, batch=4_000).replay(engine)) == []
        growing.write_bytes(b"".join(lines))
        list(UpdateFile(growing, batch=3_000).replay(engine))
        check(engine, window, window.total)
        # A batch by its number, as `replay` does it.
        number, changes = next(UpdateFile(growing, batch=3_000).batches())
        assert engine.apply(changes, source=(str(growing), number)).skipped
        growing.write_bytes(b"".join(lines[:10]))
        with pytest.raises(StorageError, match="another name="):
            list(UpdateFile(growing).replay(engine))


def test_nothing_of_a_bad_batch_is_applied(file: Path, window: Updates, spark: SparkSession, tmp_path: Path) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    wrong = tmp_path / "wrong.txt"
    wrong.write_bytes(b"".join([*lines[:2_500], b"+LI1|2\n", *lines[2_501:4_000]]))
    with child.open_engine(spark, tmp_path / "state") as engine:
        with pytest.raises(BadRowsError, match=r"wrong.txt, line 2501: 2 fields given, lineitem has 16"):
            list(UpdateFile(wrong, batch=1_000).replay(engine))
        check(engine, window, 2_000)
        wrong.write_bytes(b"".join(lines[:4_000]))
        assert len(list(UpdateFile(wrong, batch=1_000).replay(engine))) == 2, "once corrected, it goes on"
        check(engine, window, 4_000)


def test_kills_lose_and_double_nothing(
    file: Path, window: Updates, spark: SparkSession, forks: Forks, tmp_path: Path
) -> None:
    location, rng, seen = tmp_path / "state", random.Random(5), []
    with child.open_engine(spark, location):
        pass
    for kills_after in (1, 6, None):
        batch = "5000" if kills_after is None else "40"
        process = forks.start(str(CHILD), str(location), str(file), batch)
        if kills_after is not None:
            assert len(process.first_lines(kills_after)) == kills_after, process.stderr.read_text()
            time.sleep(rng.uniform(0.0, 0.1))  # a step is under way
            os.kill(process.pid, signal.SIGKILL)
        code = process.wait()
        with hr.Engine(spark, location, executor="inline") as engine:
            seen.append(engine.status()["sources"]["updates"])
            check(engine, window, seen[-1])
    assert code == 0, process.stderr.read_text()
    assert seen == sorted(seen)
    assert (seen[-1], seen[-2] < window.total) == (window.total, True)


def test_tables_that_are_not_there(file: Path, spark: SparkSession, tmp_path: Path) -> None:
    with (
        hr.Engine(spark, tmp_path / "state", executor="inline") as engine,
        pytest.raises(HeadraceError, match="there is no table 'region'"),
    ):
        next(UpdateFile(file).replay(engine))
