"""All kinds of recordings, and what generates each."""

from __future__ import annotations

from collections.abc import Mapping

from tests.golden import code, commands, database, http, outputs, python_names
from tests.golden.recordings import Generator

KINDS: Mapping[str, Generator] = {
    "environment": code.environment,
    "errors": code.errors,
    "help": commands.help_texts,
    "json": outputs.json_shapes,
    "json_batches": outputs.json_shapes_of_batches,
    "log_actions": code.log_actions,
    "metrics": http.metrics,
    "openapi": http.openapi,
    "python": python_names.public_names,
    "sql": database.functions,
}
