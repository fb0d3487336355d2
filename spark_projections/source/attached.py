"""The log that the options name: the journal of a database, or one of another system that is attached to it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from typing import cast

from journal import ConnectionSettings, InvalidValue, connect
from journal.foreign import AttachedJournal, Decoder, attached_journal, decoder_of, table_log
from journal.schema import check_version
from spark_projections.reading.logs import ReadLog
from spark_projections.source.options import DSN_VARIABLE, JournalOptions


def log_of(options: JournalOptions) -> ReadLog:
    """
    What the options name. It holds no password: each process that reads looks up the address by itself.

    Raises:
        InvalidValue: No journal has the name, the decoder is not there, or times are asked for where there are none.
        ForeignJournalError: The journal cannot be read so.
        DatabaseError: A database refused, or cannot be reached.
    """
    if options.journal is None:
        if options.decode is not None:
            raise InvalidValue("option decode: the payloads of this library's journal are JSON; leave it out")
        return ReadLog(options.dsn, DSN_VARIABLE)
    with ThreadPoolExecutor(1) as beside:  # where no event loop runs: a notebook has one
        found = beside.submit(asyncio.run, _read_log(options, options.journal)).result()
    for name, time in (("since", options.reading.since), ("until", options.reading.until)):
        if found.by_number and time is not None:
            raise InvalidValue(
                f"option {name}: journal {options.journal!r} is in the order of a number, and knows no times: leave it "
                "out"
            )
    return found


async def _read_log(options: JournalOptions, name: str) -> ReadLog:
    one = ConnectionSettings(max_connections=1)
    async with connect(options.address(), one) as read_side, read_side.session() as session:
        await check_version(session)
        journal = await attached_journal(session, name)
    decode = decoder_of(journal.kind) if options.decode is None else _decoder(options.decode)
    async with connect(journal.place, one.model_copy(update={"foreign_journal": True})) as database:
        found = ReadLog.of(await table_log(database, journal.table, name=name, decode=decode))
    return _without_password(found, journal)


def _without_password(log: ReadLog, journal: AttachedJournal) -> ReadLog:
    return replace(log, dsn=journal.dsn, variable=journal.dsn_variable)


def _decoder(place: str) -> Decoder:
    module, _, name = place.partition(":")
    try:
        return cast("Decoder", getattr(import_module(module), name))
    except (ImportError, AttributeError) as error:
        raise InvalidValue(f"option decode {place!r}: {error}") from error
