"""Declaring projections: what a class says, and every mistake found when the program starts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from projections import (
    AtLeastOnce,
    Changes,
    EventEnvelope,
    Group,
    InvalidHandler,
    Recovery,
    Session,
    Table,
    event_type,
    handles,
    handles_group,
    projection,
    reacts,
)
from projections.defining.batching import ExactlyOnce
from projections.defining.handlers import Kind, projection_of


class Landed(BaseModel):
    carrier: str


@event_type("plane-departed")
class Departed(BaseModel):
    origin: str


async def each(self: Any, session: Session, event: Any, envelope: EventEnvelope) -> None: ...


async def many(self: Any, session: Session, events: Any) -> None: ...


def changes(self: Any, event: Any, envelope: EventEnvelope) -> Changes: ...


def declare(**attributes: Any) -> Any:
    """A class with these methods, decorated."""
    return projection("p", entity_type="plane")(type("Declared", (), attributes))


def marked(method: Any, *models: Any) -> Any:
    """A copy of a method, so that marks of one test do not reach another."""
    copy = type(method)(method.__code__, method.__globals__, method.__name__)
    return handles_group(*models)(copy) if method is many else handles(models[0])(copy)


@pytest.mark.parametrize(("method", "kind"), [(each, Kind.EVENT), (many, Kind.GROUP), (changes, Kind.TABLE)])
def test_the_kind_follows_from_the_methods(method: Any, kind: Kind) -> None:
    found = projection_of(declare(method=marked(method, Landed)))

    assert found.kind is kind
    assert found.handlers == {"Landed": (Landed, "method")}


def test_handlers_are_found_by_the_stored_event_type() -> None:
    found = projection_of(declare(a=marked(each, Landed), b=marked(each, Departed)))

    assert found.handlers == {"Landed": (Landed, "a"), "plane-departed": (Departed, "b")}


def test_one_method_may_handle_several_events() -> None:
    method = marked(each, Landed)
    handles(Departed)(method)

    assert set(projection_of(declare(method=method)).handlers) == {"Landed", "plane-departed"}


def test_handlers_are_inherited() -> None:
    base = type("Base", (), {"landed": marked(each, Landed)})

    class Derived(base):  # type: ignore[misc,valid-type]
        departed = marked(each, Departed)

    found = projection_of(projection("p", entity_type="plane")(Derived))

    assert set(found.handlers) == {"Landed", "plane-departed"}


def test_defaults_are_exactly_once_and_parking() -> None:
    found = projection_of(declare(a=marked(each, Landed)))

    assert found.delivery == ExactlyOnce()
    assert found.recovery == Recovery.retry_and_park(3)
    assert (found.unhandled, found.batch_size) == ("ignore", 1000)


def test_a_class_makes_an_object_for_each_range_and_an_object_is_used_as_it_is() -> None:
    declared = declare(a=marked(each, Landed))
    existing = declared()

    assert projection_of(declared).make() is not projection_of(declared).make()
    assert projection_of(existing).make() is existing


def test_a_method_may_have_further_parameters_with_defaults() -> None:
    @projection("p", entity_type="plane")
    class WithDefault:
        @handles(Landed)
        def landed(self, event: Landed, envelope: EventEnvelope, factor: int = 1) -> Changes: ...

    assert projection_of(WithDefault).kind is Kind.TABLE


async def generator(self: Any, session: Session, event: Any, envelope: EventEnvelope) -> AsyncIterator[None]:
    yield


async def no_envelope(self: Any, event: Any) -> None: ...


def not_async(self: Any, session: Session, event: Any, envelope: EventEnvelope) -> None: ...


def group_not_async(self: Any, session: Session, events: Any) -> None: ...


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        (lambda: handles(Landed)(generator), "generator is an asynchronous generator: write it as async def"),
        (
            lambda: handles(Landed)(no_envelope),
            "no_envelope has 2 parameters: write it as async def no_envelope",
        ),
        (lambda: handles(Landed)(not_async), "it takes a session and is not async"),
        (lambda: handles_group(Landed)(group_not_async), "group_not_async is not async"),
        (
            lambda: handles_group(Landed)(each),
            r"has 4 parameters: write it as async def each\(self, session, events\)",
        ),
        (lambda: handles(dict)(each), "not a payload model; handles\\(\\) takes a pydantic model class"),
        (lambda: handles(Landed(carrier="UA"))(each), "not a payload model"),
        (lambda: declare(a=marked(each, Landed), start=not_async), "start is called around its work"),
        (declare, "Declared handles no event: mark a method with @handles"),
        (
            lambda: declare(a=marked(each, Landed), b=marked(each, Landed)),
            "both a and b handle event type 'Landed'",
        ),
        (lambda: declare(a=marked(each, Landed), b=marked(changes, Departed)), "mixes kinds of handlers"),
        (lambda: projection_of(Landed), "is not a projection: decorate its class with @projection"),
        (lambda: projection_of(object()), "is not a projection"),
    ],
)
def test_a_wrong_declaration_says_what_to_write(mark: Any, message: str) -> None:
    with pytest.raises(InvalidHandler, match=message):
        mark()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delivery": AtLeastOnce()}, "table handlers write to the database, exactly once"),
        ({"group": Group()}, "group= is for handlers marked by handles_group"),
    ],
)
def test_options_that_do_not_fit_the_kind_are_refused(options: Any, message: str) -> None:
    with pytest.raises(InvalidHandler, match=message):
        projection("p", entity_type="plane", **options)(type("Declared", (), {"a": marked(changes, Landed)}))


def test_a_size_for_batches_is_refused_beside_lists_which_have_their_own() -> None:
    with pytest.raises(InvalidHandler, match="drop batch_size"):
        projection("p", entity_type="plane", batch_size=7)(type("Declared", (), {"a": marked(many, Landed)}))


def test_lists_are_not_handled_at_the_same_time() -> None:
    with pytest.raises(InvalidHandler, match="drop concurrency"):
        projection("p", entity_type="plane", delivery=AtLeastOnce(concurrency=2))(
            type("Declared", (), {"a": marked(many, Landed)})
        )


@pytest.mark.parametrize(
    "make",
    [
        lambda: projection("", entity_type="plane"),
        lambda: projection("x" * 256, entity_type="plane"),
        lambda: projection("matching", entity_type="plane"),
        lambda: projection("p", entity_type=""),
        lambda: projection("p", entity_type="plane", batch_size=0),
        lambda: AtLeastOnce(after=0),
        lambda: AtLeastOnce(concurrency=0),
        lambda: Group(size=0),
    ],
)
def test_values_out_of_range_are_refused(make: Any) -> None:
    with pytest.raises(ValueError, match=r"must|characters"):
        make()


def test_a_groups_size_is_the_size_of_a_batch() -> None:
    @projection("p", entity_type="plane", group=Group(7, timedelta(0)))
    class Lists:
        @handles_group(Landed, Departed)
        async def lists(
            self, session: Session, events: Sequence[tuple[Landed | Departed, EventEnvelope]]
        ) -> None: ...

    assert projection_of(Lists).batch_size == 7


def test_a_table_is_declared_before_any_database_is_there() -> None:
    table = Table("t", key=("carrier",), increment=("flights",))

    assert table.upsert(carrier="UA", flights=1).key == ("UA",)


# --- annotations


class Base(BaseModel):
    n: int


class Derived(Base): ...


async def of_landed(self: Any, session: Session, event: Landed, envelope: EventEnvelope) -> None: ...
async def of_either(
    self: Any, session: Session, event: Landed | Departed, envelope: EventEnvelope
) -> None: ...
async def of_base(self: Any, session: Session, event: Base, envelope: EventEnvelope) -> None: ...
async def of_any_model(
    self: Any, session: Session, event: BaseModel | None, envelope: EventEnvelope
) -> None: ...
async def of_nobody(self: Any, session: Session, event: Nobody, envelope: EventEnvelope) -> None: ...  # type: ignore[name-defined]  # noqa: F821
async def of_dict(self: Any, session: Session, event: dict[str, Any], envelope: EventEnvelope) -> None: ...
def landed_row(self: Any, event: Landed, envelope: EventEnvelope) -> Changes: ...
async def landed_list(
    self: Any, session: Session, events: Sequence[tuple[Landed, EventEnvelope]]
) -> None: ...
async def list_of_either(
    self: Any, session: Session, events: Sequence[tuple[Landed | Departed, EventEnvelope]]
) -> None: ...


def mark(method: Any, model: Any, mark: Any = handles) -> Any:
    """A copy of a method with the mark."""
    copy = type(method)(method.__code__, method.__globals__, method.__name__)
    copy.__annotations__, copy.__qualname__ = method.__annotations__, method.__qualname__
    return mark(model)(copy)


@pytest.mark.parametrize(
    ("method", "by"),
    [
        (of_landed, handles),
        (landed_row, handles),
        (landed_list, handles_group),
        (of_landed, reacts),
    ],
)
def test_an_annotation_of_another_event_is_refused(method: Any, by: Any) -> None:
    handled = {"handled": marked(each, Landed)} if by is reacts else {}
    says = (
        f"{method.__qualname__} is marked to .* Departed, and its event is annotated as Landed: name the same"
    )
    with pytest.raises(InvalidHandler, match=says):
        declare(method=mark(method, Departed, by), **handled)
    declare(method=mark(method, Landed, by), **handled)


@pytest.mark.parametrize(
    ("method", "model"),
    [
        (of_either, Landed), (of_either, Departed), (of_base, Derived), (of_any_model, Landed), (of_nobody, Landed),
        (of_dict, Landed), (each, Landed),
    ],
)  # fmt: skip
def test_an_annotation_that_takes_the_event_is_accepted(method: Any, model: Any) -> None:
    declare(method=mark(method, model))


def test_a_union_without_the_event_is_refused_and_a_base_class_is_not_its_subclass() -> None:
    with pytest.raises(InvalidHandler, match=r"Derived, and its event is annotated as Landed \| Departed"):
        declare(method=mark(of_either, Derived))
    with pytest.raises(InvalidHandler, match="to handle Base, and its event is annotated as Derived"):

        @projection("p", entity_type="plane")
        class Local:
            @handles(Base)
            async def method(self, session: Session, event: Derived, envelope: EventEnvelope) -> None: ...

    declare(method=mark(list_of_either, Departed, handles_group))


def test_a_model_of_a_function_is_found() -> None:
    class Landed(BaseModel):
        """Another one than that of the module."""

    @projection("p", entity_type="plane")
    class Local:
        @handles(Landed)
        async def method(self, session: Session, event: Landed, envelope: EventEnvelope) -> None: ...

    assert projection_of(Local).handlers["Landed"] == (Landed, "method")
