"""Definitions and snapshots by themselves, without Spark: what is there, who needs it, and which files stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from headrace.engine import store as store_module
from headrace.engine.catalogue import Catalogue, Entry
from headrace.engine.definition import Definition, PlannedView, SparkAnswer, SqlRequest
from headrace.engine.store import Store
from headrace.errors import SchemaError, StorageError
from headrace.relation.schema import Column, TableSchema
from headrace.relation.types import SqlType
from headrace.runtime.location import Location
from headrace.runtime.record import BucketState, RunRef


class Kernel:
    """As much of a kernel as the catalogue looks at."""

    inlets: ClassVar[dict[str, None]] = {}

    @property
    def arrangements(self) -> dict[str, None]:
        return {"groups": None}


def schema(name: str, **options: Any) -> TableSchema:
    return TableSchema.of(name, [Column("id", SqlType("bigint"))], "id", **options)


def planned(sql: str) -> PlannedView:
    return PlannedView(defined(sql), Kernel(), ("a",), SparkAnswer(None))  # type: ignore[arg-type]


def defined(sql: str) -> Definition:
    return Definition(SqlRequest(sql))


@pytest.fixture
def catalogue() -> Catalogue:
    found = Catalogue(seed=1)
    for table in (schema("a", static=True), schema("b", references={"id": "a"})):
        found.add_table(table, lambda layout: layout.schema.name)  # type: ignore[arg-type, return-value]
    found.add_view("v", planned("SELECT 1"), lambda entry: entry)  # type: ignore[arg-type, return-value]
    return found


def test_names_are_taken_once(catalogue: Catalogue) -> None:
    assert catalogue.same_table(schema("a", static=True))
    assert not catalogue.same_table(schema("c"))
    with pytest.raises(SchemaError, match="'a' exists with another definition"):
        catalogue.same_table(schema("a"))
    assert catalogue.same_view("v", defined("SELECT 1"))
    with pytest.raises(SchemaError, match="'v' exists with another definition"):
        catalogue.same_view("v", defined("SELECT 2"))
    with pytest.raises(SchemaError, match="'V' is taken by 'v'"):
        catalogue.same_table(schema("V"))
    with pytest.raises(SchemaError, match="'A' is taken by 'a'"):
        catalogue.same_view("A", defined("SELECT 1"))
    with pytest.raises(SchemaError, match=r"no table 'v'\n.*a, b, v"):
        catalogue.table("v")


def test_what_something_needs_is_not_dropped(catalogue: Catalogue) -> None:
    with pytest.raises(SchemaError, match="'a' is used by v, b"):
        catalogue.check_unused("a")
    with pytest.raises(SchemaError, match="no table or view 'x'"):
        catalogue.check_unused("x")
    with pytest.raises(SchemaError, match="static, and v relies on that"):
        catalogue.check_changeable(["b", "a"])
    assert catalogue.arrangements_of("v") == ("view/v/groups", "final/v")
    for name in ("v", "b", "a"):
        catalogue.check_unused(name)
        catalogue.remove(name)
    assert not catalogue.tables
    assert not catalogue.views


def test_a_handle_knows_when_its_view_is_gone(catalogue: Catalogue) -> None:
    old = catalogue.handles["v"]
    assert isinstance(old, Entry)
    before = catalogue.replan({"v": planned("SELECT 1 -- with shifts")})
    assert old.planned.definition.sql.endswith("shifts")
    catalogue.replan(before)
    assert old.planned.definition.sql == "SELECT 1"
    old.check_there()
    catalogue.remove("v")
    catalogue.add_view("v", planned("SELECT 1"), lambda entry: entry)  # type: ignore[arg-type, return-value]
    with pytest.raises(SchemaError, match="has been dropped"):
        old.check_there()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(Location(tmp_path))
    made.open(2, 4, {})
    yield made
    made.close()


def commit(store: Store, name: str, live: int) -> Path:
    """Make one file the whole of a view."""
    path = store.location.runs / name
    path.write_bytes(b"")
    state = {"view/v/groups": {0: BucketState((RunRef(name, live, 10),), live)}}
    store.commit(store.next_record(views={"v": {}}, buckets=state))
    return path


def test_what_a_commit_replaces_stays_until_the_commit_is_safe(store: Store) -> None:
    first = commit(store, "first", 3)
    commit(store, "second", 5)
    assert first.exists()
    store.sync()
    assert not first.exists()


def test_files_stay_while_a_reader_is_open(store: Store) -> None:
    first = commit(store, "first", 3)
    with store.reader() as reader:
        second = commit(store, "second", 5)
        assert reader.live("v", "groups") == 3
        assert reader.bytes("v", ["groups", "none"]) == 10
        assert reader.sizes("v", ["groups"]) == {"groups": [(1, 3, 10)]}
        assert store.latest.live("v", "groups") == 5
        store.sync()
        assert first.exists()
    assert not first.exists()
    assert second.exists()
    assert store.latest.final("v") == store.latest.rows("t") == 0


def test_files_stay_a_while_after_nobody_holds_a_reader(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    first = commit(store, "first", 3)
    lasting = store.reader()
    monkeypatch.setattr(store_module, "GRACE_SECONDS", 0.0)
    short = store.reader()
    commit(store, "second", 5)
    store.sync()
    del lasting
    gc.collect()
    assert first.exists()  # somebody may still use a DataFrame that was derived from one
    del short
    gc.collect()
    assert first.exists()
    store.close()
    with pytest.raises(StorageError, match="is closed"):
        store.reader()


def test_a_file_that_one_reader_needs_outlives_another(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "GRACE_SECONDS", 0.0)
    first = commit(store, "first", 3)
    one, other = store.reader(), store.reader()
    commit(store, "second", 5)
    store.sync()
    one.close()
    one.close()  # twice is once
    assert first.exists()
    del other
    gc.collect()
    assert not first.exists()
