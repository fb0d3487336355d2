"""Payloads of older versions in the newest one, by models that tasks import when they meet such an event."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, reduce
from importlib import import_module
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel

from journal import LIBRARY_TYPES, InvalidPayload, InvalidValue, declared_models, event_type_of, upcast_json
from spark_projections.reading.logs import UNREADABLE

_LIBRARY = pa.array(sorted(LIBRARY_TYPES))


@dataclass(frozen=True, slots=True)
class NewestVersions:
    """
    The newest version of event types, and where the model of each is.

    Args:
        names: Event types.
        versions: The newest version of each; events of older ones are converted.
        places: The model of each, ``module:name``.
    """

    names: tuple[str, ...] = ()
    versions: tuple[int, ...] = ()
    places: tuple[str, ...] = ()

    UPCAST = ("source_id", "seq_nr", "event_type", "version", "payload")
    """Columns that :meth:`upcast` takes."""
    NEEDED = (*UPCAST, "entity_type")
    """Columns that a batch needs."""

    @classmethod
    def of(cls, models: Iterable[type[BaseModel]] | None) -> NewestVersions:
        """Those of some models; None: of the models that this program declares."""
        given = declared_models().values() if models is None else models
        types = [(event_type_of(model), f"{model.__module__}:{model.__qualname__}") for model in given]
        found = [(one.name, one.version, place) for one, place in types if one.version > 1]
        return cls(*map(tuple, zip(*found, strict=True))) if found else cls()

    @classmethod
    def parse(cls, text: str) -> NewestVersions:
        """Read :attr:`text`; ValueError: it is something else."""
        try:
            found = [(name, int(version), str(place)) for name, (version, place) in json.loads(text).items()]
        except (ValueError, TypeError, AttributeError):
            raise ValueError('a JSON object is needed, such as {"Paid": [2, "bank.events:Paid"]}') from None
        return cls(*map(tuple, zip(*found, strict=True))) if found else cls()

    @property
    def text(self) -> str | None:
        """As an option; None: there are none."""
        found = zip(self.names, zip(self.versions, self.places, strict=True), strict=True)
        return json.dumps(dict(found)) if self.names else None

    def converted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """
        A batch with payloads and versions of the newest version.

        Args:
            batch: It has the columns :attr:`NEEDED`; and :data:`UNREADABLE` if payloads that cannot be converted are to
                be NULL, with the reason there.

        Raises:
            InvalidPayload: A payload cannot be converted.
            InvalidValue: A model cannot be imported.
        """
        newest = pc.take(
            pa.array(self.versions, pa.int32()), pc.index_in(batch.column("event_type"), pa.array(self.names))
        )
        older = pc.fill_null(pc.less(batch.column("version"), newest), fill_value=False)
        older = pc.and_(older, pc.invert(pc.is_in(batch.column("entity_type"), _LIBRARY)))
        older = pc.and_(older, pc.is_valid(batch.column("payload")))
        if not pc.any(older).as_py():
            return batch
        columns = {name: batch.column(name) for name in batch.schema.names}
        events = batch.select(self.UPCAST).filter(older).to_pylist()
        payloads, wrong = zip(*self._each(events, permissive=UNREADABLE in columns), strict=True)
        columns["payload"] = pc.replace_with_mask(columns["payload"], older, pa.array(payloads, pa.string()))
        columns["version"] = pc.if_else(older, newest, columns["version"])
        if UNREADABLE in columns:
            columns[UNREADABLE] = pc.replace_with_mask(
                columns[UNREADABLE], older, pa.array(wrong, pa.string())
            )
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def upcast(self, source_id: str, seq_nr: int, event_type: str, version: int, payload: str) -> str:
        """The payload of an event of an older version; raises as :meth:`converted`."""
        place = self.places[self.names.index(event_type)]
        return upcast_json(_model(place), version, payload, source_id, seq_nr)

    def _each(
        self, events: Iterable[dict[str, Any]], *, permissive: bool
    ) -> Iterator[tuple[str | None, str | None]]:
        """The payload of each, and what is wrong with it."""
        for event in events:
            try:
                yield self.upcast(**event), None
            except InvalidPayload as error:
                if not permissive:
                    raise
                yield None, str(error)


@lru_cache
def _model(place: str) -> type[BaseModel]:
    module, _, name = place.partition(":")
    if module == "__main__":
        raise _cannot_import(place, "it is declared in the program itself, which tasks do not import")
    try:
        return cast("type[BaseModel]", reduce(getattr, name.split("."), import_module(module)))
    except (ImportError, AttributeError) as error:
        raise _cannot_import(place, error) from error


def _cannot_import(place: str, why: object) -> InvalidValue:
    return InvalidValue(
        f"an event of an older version is to be converted by {place}, which cannot be imported here: {why}. Put it "
        "where tasks can import it, or read payloads as they are stored, with models=()"
    )
