"""Which tables a projection writes, and what tells its code apart."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from journal import ALL_SLICES, SliceRange
from projections import AtLeastOnce, EventEnvelope, Session, Table, handles, projection
from projections.errors import InvalidHandler
from spark_projections.errors import NotRebuildable
from spark_projections.rebuilds.definition import WrittenTable, fingerprint, rebuildable, tables_of
from tests.fixtures import rebuilds
from tests.fixtures.projections import Happened

ONE = Table("one", key="k", increment="n")
TWO = Table("two", key="k", set="n", per_source=True)
FAR = Table("elsewhere.far", key="source_id", increment="n", source="source_id")
tables = SimpleNamespace(one=ONE)


def change_two(k: str) -> Any:
    return TWO.upsert(k=k, n=1)


def names(definition: Any) -> list[str]:
    return [str(one) for one in tables_of(definition)]


def event_handler(**options: Any) -> type[Any]:
    @projection("p", entity_type="plane", **options)
    class Writing:
        @handles(Happened)
        async def happened(self, session: Session, event: Happened, envelope: EventEnvelope) -> None: ...

    return Writing


def table_handler(*used: Table, **options: Any) -> type[Any]:
    @projection("p", entity_type="plane", **options)
    class Changing:
        @handles(Happened)
        def happened(self, event: Happened, envelope: EventEnvelope) -> Any:
            return [table.upsert(k="k", n=1) for table in used]

    return Changing


def test_tables_of_a_table_handler_are_those_that_its_code_names() -> None:
    @projection("p", entity_type="plane")
    class Naming:
        @handles(Happened)
        def happened(self, event: Happened, envelope: EventEnvelope) -> Any:
            yield ONE.upsert(k="k", n=1)
            yield from (change_two(k) for k in "ab")

    assert names(Naming) == ["one", "two"]


def test_tables_that_a_handler_names_in_a_module_are_found() -> None:
    @projection("p", entity_type="plane")
    class Naming:
        @handles(Happened)
        def happened(self, event: Happened, envelope: EventEnvelope) -> Any:
            return rebuilds.TOTALS.upsert(key="k", n=1)

    assert names(Naming) == ["totals"]


def test_tables_that_a_handler_closes_over_or_keeps_in_its_class_are_found() -> None:
    own = Table("own", key="k")

    @projection("p", entity_type="plane")
    class Keeping:
        kept = TWO

        @handles(Happened)
        def happened(self, event: Happened, envelope: EventEnvelope) -> Any:
            yield own.upsert(k="k")
            yield self.kept.upsert(k="k", n=1)

    assert names(Keeping) == ["own", "two"]


def test_an_object_writes_what_its_class_does() -> None:
    assert names(rebuilds.Counts()) == ["counts"]


def test_declared_tables_replace_those_that_are_found() -> None:
    assert names(table_handler(ONE, tables=(ONE, "more"))) == ["more", "one"]


def test_a_table_that_is_declared_twice_is_one() -> None:
    assert tables_of(event_handler(tables=("b", "a", "b"))) == [
        WrittenTable(("a",), None),
        WrittenTable(("b",), None),
    ]


def test_a_name_with_a_dot_has_a_schema() -> None:
    assert tables_of(event_handler(tables=("s.t",))) == [WrittenTable(("s", "t"), None)]


@pytest.mark.parametrize(("table", "shared"), [(ONE, True), (TWO, False), (FAR, False), (None, False)])
def test_rows_of_tables_that_are_not_per_source_are_shared(table: Table | None, shared: bool) -> None:
    assert WrittenTable(("t",), table).shared is shared


def test_what_is_no_projection_is_refused() -> None:
    with pytest.raises(InvalidHandler):
        rebuildable(Happened)


def test_at_least_once_is_refused() -> None:
    with pytest.raises(NotRebuildable, match="'p' cannot be rebuilt: its delivery is AtLeastOnce"):
        rebuildable(event_handler(delivery=AtLeastOnce(), tables=("t",)))


@pytest.mark.parametrize("declared", [None, ()])
def test_unknown_tables_are_refused(declared: tuple[str, ...] | None) -> None:
    with pytest.raises(NotRebuildable, match="which tables it writes is not known"):
        rebuildable(event_handler(tables=declared))


def test_two_tables_of_one_name_are_refused() -> None:
    with pytest.raises(NotRebuildable, match="two tables named 't' in different schemas"):
        rebuildable(event_handler(tables=("t", "s.t")))


@pytest.mark.parametrize("name", ["_offsets", "_last", "_staged_1"])
def test_names_that_rebuilds_use_are_refused(name: str) -> None:
    with pytest.raises(NotRebuildable, match=name):
        rebuildable(event_handler(tables=(name,)))


def test_a_range_of_slices_needs_rows_that_tell_their_source() -> None:
    some = SliceRange(0, 9)

    assert rebuildable(event_handler(tables=(FAR,)), some)[1] == [WrittenTable(("elsewhere", "far"), FAR)]
    for declared in ("t", TWO):
        with pytest.raises(NotRebuildable, match=r"slices 0-9 .* table (t|two) .*source='column'"):
            rebuildable(event_handler(tables=(declared,)), some)
        assert rebuildable(event_handler(tables=(declared,)), ALL_SLICES)


CODE = """
from projections import handles, projection
from tests.fixtures.projections import Happened

def versioned(version):
    @projection("p", entity_type="plane", version=version, tables=("t",))
    class Versioned:
        @handles(Happened)
        def happened(self, event, envelope): ...
    return Versioned

A, AGAIN, NEXT = versioned(1), versioned(1), versioned(2)

class B(A): ...
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module as an application has it."""
    (tmp_path / "fingerprinted.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("fingerprinted")
    del sys.modules["fingerprinted"]


def test_the_fingerprint_stays_while_the_code_does(module: Any) -> None:
    assert fingerprint(module.A) == fingerprint(module.A()) == fingerprint(module.AGAIN)


def test_the_fingerprint_tells_classes_versions_and_states_of_a_module_apart(
    module: Any, tmp_path: Path
) -> None:
    before = {fingerprint(one) for one in (module.A, module.B, module.NEXT)}
    (tmp_path / "fingerprinted.py").write_text(CODE + "# changed")

    assert len(before) == 3
    assert fingerprint(module.A) not in before
