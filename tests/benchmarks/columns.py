"""
Folding a page in memory: the events of a table handler one after the other, beside whole columns in pyarrow.

What such columns would bring, before any of it is built: the decision in docs/decisions/columns.md rests on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from itertools import count
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyarrow import compute
from pyarrow import json as arrow_json

from journal import EventEnvelope, decoder
from projections.defining import Batch
from tests.benchmarks import workload
from tests.benchmarks.harness import Contender, Line, Sizes, compare
from tests.benchmarks.server import Server
from tests.benchmarks.workload import Landed

_FIELDS = pa.schema({"carrier": pa.string(), "day": pa.string(), "delay": pa.int64()})
_PARSE = arrow_json.ParseOptions(explicit_schema=_FIELDS, unexpected_field_behavior="ignore")
_READ = arrow_json.ReadOptions(use_threads=False, block_size=1 << 24)
_OPERATIONS = [([], "count_all"), ("delay", "sum"), ("delay", "max")]

Rows = dict[tuple[str, date], tuple[int, int, int]]
"""By carrier and day: flights, delay, worst delay."""
Page = Sequence[EventEnvelope]


def _page(number: int, sources: int) -> Page:
    start = number * workload.BATCH
    at = datetime.now(UTC)
    return [
        EventEnvelope(
            workload.source_id(n, sources), n // sources + 1, at, 0, UUID(int=n), workload.ENTITY_TYPE, "Landed", 1,
            workload.landed(n, sources).model_dump_json(), None, None,
        )
        for n in range(start, start + workload.BATCH)
    ]  # fmt: skip


def _by_handler(page: Page) -> Rows:
    batch, decode, handle = Batch(), decoder(Landed), workload.ByTable().landed
    for envelope in page:
        batch.collect(envelope.source_id, handle(decode(envelope), envelope))
    rows = batch.tables[workload.DELAYS].items()
    return {key: tuple((row.values or {}).values()) for key, row in rows}  # type: ignore[misc]


def _by_columns(page: Page) -> Rows:
    payloads = "\n".join([envelope.payload_json for envelope in page]).encode()
    events = arrow_json.read_json(pa.BufferReader(payloads), read_options=_READ, parse_options=_PARSE)
    events = events.set_column(1, "day", compute.cast(events["day"], pa.date32()))
    grouped = events.group_by(["carrier", "day"], use_threads=False).aggregate(_OPERATIONS)
    names = ("carrier", "day", "count_all", "delay_sum", "delay_max")
    columns = [grouped[name].to_pylist() for name in names]
    return {(carrier, day): values for carrier, day, *values in map(tuple, zip(*columns, strict=True))}  # type: ignore[misc]


def _contender(pages: Sequence[Page], fold: Callable[[Page], Rows]) -> Contender:
    turn = count()

    async def measured() -> float:
        page = pages[next(turn) % len(pages)]
        begun = time.thread_time()
        fold(page)
        return (time.thread_time() - begun) / len(page) * 1e6

    return measured


async def measure_columns(_server: Server, sizes: Sizes) -> list[Line]:
    """Processor time for an event, decoding included; no database."""
    pages = [_page(number, sizes.sources) for number in range(sizes.rounds + 1)]
    for page in pages:
        _same(_by_handler(page), _by_columns(page))
    rounds = await compare(
        {"handler": _contender(pages, _by_handler), "columns": _contender(pages, _by_columns)},
        sizes.rounds * 5,
    )
    return [rounds.line("decode and fold, columns in pyarrow", "µs/event", "columns", "handler")]


def _same(rows: Rows, others: Any) -> None:
    if {key: tuple(values) for key, values in others.items()} != rows:
        raise AssertionError("the columns have other rows than the handler")
