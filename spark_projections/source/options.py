"""The options of the ``journal`` data source: words of Spark on one side, what to read on the other."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from journal import ALL_TYPES, EntityTypes, InvalidEvent, InvalidValue, SliceRange
from spark_projections.reading.batches import ALL_SEQ_NRS, COLUMNS, Reading
from spark_projections.reading.logs import ReadLog
from spark_projections.source.newest import NewestVersions

DSN_VARIABLE = "PROJECTIONS_DSN"


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """
    What the options say. Picklable, and holds no password.

    Args:
        reading: What to read, before it is split.
        dsn: Where; None for the environment's PROJECTIONS_DSN, which each process looks up by itself.
        journal: The name of a journal of another system that is attached there; None for the journal there.
        decode: Where a decoder of its payloads is, MODULE:NAME; None for that of its kind.
        models: Of which event types older versions are converted.
        splits: Tasks that read, at most.
        payload_schema: The payload's fields as Spark writes columns; None for the text.
        mode: What a payload that does not fit does: ``failfast`` ends the query, ``permissive`` makes it null.
        horizon: Whether to read up to the settled horizon.
        wait: How long to wait for it.
        max_rows: Events of a micro-batch, about; None for all there are.
        on_import: What a stream does about an import behind it: fail, reread or skip.
    """

    reading: Reading
    dsn: str | None = None
    journal: str | None = None
    decode: str | None = None
    models: NewestVersions = field(default_factory=NewestVersions)
    splits: int = 8
    payload_schema: str | None = None
    mode: str = "failfast"
    horizon: bool = True
    wait: timedelta = timedelta(seconds=10)
    max_rows: int | None = None
    on_import: str = "fail"

    def address(self) -> str:
        """The DSN to use in this process; InvalidValue: neither the option nor this process's environment has one."""
        return ReadLog(self.dsn, DSN_VARIABLE).address()


def parse_options(options: Mapping[str, str]) -> JournalOptions:
    """
    Read the options of a DataFrame or stream, which Spark passes as lower-case names and text values.

    InvalidValue names one that is unknown, missing or not readable, and what it takes.
    """
    given = {name.lower(): text for name, text in options.items()}
    names = [*map(_option, (*_OF_READING, *_OTHERS)), "alltypes", "snapshot"]
    if unknown := sorted(given.keys() - set(names)):
        raise InvalidValue(f"unknown option {unknown[0]!r}: the journal takes {', '.join(names)}")
    if not given.get("entitytype") and "alltypes" not in given:
        raise InvalidValue(
            "the option entitytype is missing: say whose events to read, or set alltypes to true"
        )
    if "entitytype" in given and "alltypes" in given:
        raise InvalidValue("the options entitytype and alltypes are both there: have one of them")
    snapshot = given.get("snapshot", "horizon")
    if snapshot == "export":
        raise InvalidValue(
            "snapshot=export needs somebody who holds the snapshot while Spark reads: use "
            "spark_projections.source.source.journal_frame, or pass the id of a snapshot that is held open"
        )
    reading = _values(_OF_READING, given) | {
        "snapshot": None if snapshot in {"horizon", "none"} else snapshot
    }
    if _values({"alltypes": _one_of("true")}, given):
        reading["entity_type"] = ALL_TYPES
    return JournalOptions(Reading(**reading), horizon=snapshot == "horizon", **_values(_OTHERS, given))


def _values(kinds: Mapping[str, Callable[[str], Any]], given: Mapping[str, str]) -> dict[str, Any]:
    """The fields that options were given for, by their kinds, whose ValueError says what each takes."""
    values: dict[str, Any] = {}
    for one, kind in kinds.items():
        if (text := given.get(name := _option(one))) is not None:
            try:
                values[one] = kind(text)
            except ValueError as error:
                shown = "" if name == "dsn" else f" {text!r}"
                raise InvalidValue(f"option {name}{shown}: {error}") from None
    return values


def _option(field: str) -> str:
    return field.replace("_", "")


def options_of(**values: Any) -> dict[str, str]:
    """Options that :func:`parse_options` reads as these values, by their fields; None leaves one out."""
    texts = {_option(one): _TEXTS.get(one, str)(value) for one, value in values.items() if value is not None}
    if "entity_type" in values and texts["entitytype"] is None:
        texts["alltypes"] = "true"
    return {name: text for name, text in texts.items() if text is not None}


def _types_text(given: str | Collection[str] | EntityTypes) -> str | None:
    try:
        names = EntityTypes.of(given).names
    except InvalidEvent as error:
        raise InvalidValue(str(error)) from None
    return None if names is None else json.dumps(names)


def _listed(texts: Iterable[str]) -> str | None:
    return json.dumps(found) if (found := list(texts)) else None


def _dsn(text: str) -> str:
    try:
        said = conninfo_to_dict(text)
    except psycopg.ProgrammingError:
        raise ValueError("not a PostgreSQL URL or a libpq keyword string") from None
    if said.get("password"):
        raise ValueError(
            "holds a password, which would travel with the plan. Set the whole DSN as "
            f"{DSN_VARIABLE} in the environment of the driver and of the executors, or leave the password to "
            "libpq there: PGPASSFILE or PGPASSWORD"
        )
    return text


def _place(text: str) -> str:
    if not all(part.isidentifier() for part in re.split("[.:]", text)) or text.count(":") != 1:
        raise ValueError("write it as module:name")
    return text


def _slices(text: str) -> SliceRange:
    """``0-255``, or one slice."""
    found = re.fullmatch(r"\s*(\d{1,4})(?:\s*-\s*(\d{1,4}))?\s*", text)
    if found is None:
        raise ValueError("write it as 0-255")
    return SliceRange.of(int(found[1]), int(found[2] or found[1]))


def _seq_nrs(text: str) -> tuple[int, int]:
    """``1-50``, or one number."""
    found = re.fullmatch(r"\s*(\d{1,19})(?:\s*-\s*(\d{1,19}))?\s*", text)
    low, high = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not ALL_SEQ_NRS[0] <= low <= high <= ALL_SEQ_NRS[1]:
        raise ValueError("write it as 1-50; numbers begin at 1")
    return low, high


def _positive(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError("a whole number from 1 on is needed")
    return int(text)


def _seconds(text: str) -> timedelta:
    try:
        seconds = timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        seconds = timedelta(-1)
    if seconds < timedelta(0):
        raise ValueError("a number of seconds is needed")
    return seconds


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("an ISO time is needed, such as 2026-01-31T00:00:00Z") from None
    if time.utcoffset() is None:
        raise ValueError("the time needs a zone, such as 2026-01-31T00:00:00Z")
    return time


def _texts(text: str) -> tuple[str, ...]:
    try:
        texts = json.loads(text)
    except ValueError:
        texts = None
    if not isinstance(texts, list) or not texts or not all(isinstance(one, str) for one in texts):
        raise ValueError('a JSON list of texts is needed, such as ["N12345", "N9,1"]')
    return tuple(texts)


def _types(text: str) -> EntityTypes:
    """A type, or a JSON list of them."""
    if text.startswith("["):
        return EntityTypes.of(_texts(text), "it")
    if "*" in text:
        raise ValueError("* stands for nothing in it: name one type, or several, or set alltypes to true")
    if "," in text:
        raise ValueError('write several as a JSON list, ["plane", "airport"]')
    return EntityTypes.of(text, "it")


def _columns(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if wrong := [name for name in names if name not in COLUMNS or names.count(name) > 1]:
        raise ValueError(f"{wrong[0]!r} is unknown or twice: the columns are {', '.join(COLUMNS)}")
    return names


def _one_of(*words: str) -> Callable[[str], str]:
    def choice(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(f"one of {', '.join(words)} is needed")
        return text.lower()

    return choice


_OF_READING: Mapping[str, Callable[[str], Any]] = {
    "entity_type": _types,
    "slices": _slices,
    "since": _time,
    "until": _time,
    "event_types": _texts,
    "source_ids": _texts,
    "seq_nrs": _seq_nrs,
    "columns": _columns,
}
_OTHERS: Mapping[str, Callable[[str], Any]] = {
    "dsn": _dsn,
    "journal": str,
    "decode": _place,
    "models": NewestVersions.parse,
    "splits": _positive,
    "payload_schema": str,
    "mode": _one_of("failfast", "permissive"),
    "wait": _seconds,
    "max_rows": _positive,
    "on_import": _one_of("fail", "reread", "skip"),
}
"""By field; the option has its name, without underscores."""

_TEXTS: Mapping[str, Callable[[Any], str | None]] = {
    "entity_type": _types_text,
    "since": datetime.isoformat,
    "until": datetime.isoformat,
    "event_types": _listed,
    "source_ids": _listed,
    "seq_nrs": "{0[0]}-{0[1]}".format,
    "columns": ",".join,
    "models": lambda models: models.text,
    "wait": lambda wait: str(wait.total_seconds()),
}
