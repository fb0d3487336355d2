"""All kinds of recordings, and what generates each."""

from __future__ import annotations

from collections.abc import Mapping

from tests.golden import code, commands, database, http, python_names
from tests.golden.recordings import Generator

KINDS: Mapping[str, Generator] = {
    "environment": code.environment,
    "errors": code.errors,
    "help": commands.help_texts,
    "log_actions": code.log_actions,
    "metrics": http.metrics,
    "openapi": http.openapi,
    "python": python_names.public_names,
    "sql": database.functions,
}
