"""Saying whose events are to be read: one entity type, several or every one."""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from typing import Any

import pytest

from journal import ALL_TYPES, EntityTypes
from projections import Event, EventEnvelope, InvalidEvent, Session, handles, projection
from projections.defining.handlers import projection_of
from projections.testing import changes_of
from tests.fixtures.projections import Happened
from tests.fixtures.rebuilds import Counts


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("plane", ("plane",)),
        (("plane", "airport"), ("airport", "plane")),
        (["plane"], ("plane",)),
        ({"b", "a", "B"}, ("B", "a", "b")),
        (frozenset({"a"}), ("a",)),
        (("a,b",), ("a,b",)),
        (("all",), ("all",)),
        (ALL_TYPES, None),
        (EntityTypes.of(("b", "a")), ("a", "b")),
    ],
)
def test_one_type_several_in_any_order_or_every_one(given: Any, names: tuple[str, ...] | None) -> None:
    assert EntityTypes.of(given).names == names


REFUSED: Mapping[str, tuple[Any, str]] = {
    "star": ("*", r"* stands for nothing in it"),
    "pattern": (
        "plane*",
        "to read several, write entity_type=('plane', 'airport'), and for every one ALL_TYPES",
    ),
    "commas": ("plane, airport", "write several as ('plane', 'airport')"),
    "comma": ("a,", "and one whose name has a comma as ('a,',)"),
    "text for all": ("ALL_TYPES", "for every type write ALL_TYPES, which is not a text"),
    "all": ("all", "and one of this name as ('all',)"),
    "empty text": ("", "must have 1 to 255 characters"),
    "nothing": ((), "write the name of a type, several as ('plane', 'airport'), or ALL_TYPES for every one"),
    "None": (None, "or ALL_TYPES for every one"),
    "number": (7, "or ALL_TYPES for every one"),
    "bytes": (b"plane", "or ALL_TYPES for every one"),
    "mapping": ({"plane": 1}, "or ALL_TYPES for every one"),
    "generator": ((name for name in ("a", "b")), "or ALL_TYPES for every one"),
    "mixed set": ({"plane", 7}, "entity_type must be a string, not int"),
    "all among others": (("plane", ALL_TYPES), "entity_type must be a string, not EntityTypes"),
    "star among others": (("plane", "*"), "* stands for nothing in it"),
    "empty among others": (("plane", ""), "must have 1 to 255 characters"),
    "twice": (["plane", "airport", "plane"], "entity_type names 'plane' twice: write each type once"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_anything_else_is_refused_when_it_is_defined_and_told_what_to_write(name: str) -> None:
    given, said = REFUSED[name]

    with pytest.raises(InvalidEvent, match=re.escape(said).replace("entity_type", "entity_type.*")):
        projection("p", entity_type=given)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (
            ["k,r"],
            "entity_types has 'k,r': write 'k', 'r', each by itself; in Python, one of this name is Enti",
        ),
        (["k", "all"], "entity_types has 'all': leave it out for every type"),
        (["ALL_TYPES"], "in Python, one of this name is EntityTypes.of(('ALL_TYPES',))"),
        (["k", "k"], "entity_types names 'k' twice"),
        (["*"], "* stands for nothing in it"),
    ],
)
def test_a_name_of_a_list_is_one_type(names: list[str], said: str) -> None:
    with pytest.raises(InvalidEvent, match=re.escape(said)):
        EntityTypes.each(names)


def test_the_error_names_the_projection() -> None:
    with pytest.raises(InvalidEvent, match="entity_type of projection 'delays' names 'a' twice"):
        projection("delays", entity_type=("a", "a"))


def test_what_is_read_is_said_for_tables_and_for_sentences() -> None:
    shown = [(str(types), types.said) for types in map(EntityTypes.of, ("a", ("b", "a"), ALL_TYPES))]

    assert shown == [("a", "type 'a'"), ("a, b", "types 'a', 'b'"), ("every type", "every type")]


def test_it_travels_to_another_process() -> None:
    for types in (ALL_TYPES, EntityTypes.of(("a", "b"))):
        assert pickle.loads(pickle.dumps(types)) == types


def test_handlers_are_by_payload_model_whatever_types_are_read() -> None:
    @projection("p", entity_type=("plane", "airport"))
    class Both:
        @handles(Happened)
        async def happened(self, session: Session, event: Happened, envelope: EventEnvelope) -> None:
            """Nothing."""

    found = projection_of(Both)

    assert ("plane" in found.entity_types, "ship" in found.entity_types) == (True, False)
    assert list(found.handlers) == ["Happened"]


def test_changes_of_events_of_other_types_are_left_out() -> None:
    events = [
        Event("a", Happened(), "plane"),
        Event("b", Happened(), "airport"),
        Event("c", Happened(), "ship"),
    ]

    both = projection("p", entity_type=("plane", "airport"))(type("Both", (Counts,), {}))

    assert set(changes_of(both, events)["counts"]) == {("a",), ("b",)}
