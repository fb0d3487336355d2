"""Logs of a running command: one line for a person, or one JSON object for a machine."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Annotated, Literal

from journal.database import hide_password
from projections.terminal.commands import Opt
from projections.terminal.output import printable

LogFormat = Annotated[Literal["text", "json"], Opt("How lines of the log are written, to stderr.")]

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "action"}


class _JsonFormatter(logging.Formatter):
    """``time``, ``level``, ``action``, ``message``, then whatever the call gave as ``extra``."""

    def format(self, record: logging.LogRecord) -> str:
        values = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "action": getattr(record, "action", None),
            "message": hide_password(record.getMessage()),
            "logger": record.name,
        }
        values |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info:
            values["exception"] = hide_password(self.formatException(record.exc_info))
        return json.dumps(values, ensure_ascii=False, default=str)


class _TextFormatter(logging.Formatter):
    """``2026-01-31 12:00:00.123 INFO    started: the message``, times in UTC; tracebacks on lines of their own."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        action = getattr(record, "action", record.name)
        line = f"{time} {record.levelname:<7} {action}: {printable(record.getMessage())}"
        if record.exc_info:
            lines = self.formatException(record.exc_info).splitlines()
            line = "\n".join([line, *(f"  {printable(each)}" for each in lines)])
        return hide_password(line)


def configure_logs(form: LogFormat, level: str) -> None:
    """Write all logs of this process from this level on to stderr, as ``text`` or ``json``."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonFormatter() if form == "json" else _TextFormatter())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    logging.getLogger("asyncpg").setLevel(logging.ERROR)  # its tracebacks tell what a line of ours does
