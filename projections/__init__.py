"""
Projections over a journal in PostgreSQL: what an application imports.

Define a class with :func:`projection` and :class:`handles`, append with :func:`append`, run with :func:`run`.
"""

from pathlib import Path
from runpy import run_path

# Before the first import of what may be a package of the application; an installation without sources goes unchecked.
if (_check := Path(__file__).parent.parent / "journal" / "import_names.py").exists():
    run_path(str(_check))["check_import_names"]("journal", "offsets")

import journal
from journal import *
from journal import NotFound
from journal.embedded import database_dsn
from journal.schema import install
from offsets import ParkedSources, live_events
from projections.defining import (
    AtLeastOnce,
    Changes,
    Group,
    Table,
    TableError,
    events,
    handles,
    handles_group,
    projection,
    reacts,
    read_model,
)
from projections.errors import InvalidHandler, ProjectionFailed
from projections.failing import Backoff, Recovery, Retries
from projections.running import Inline, RunSettings, StatusObserver, run
from projections.waiting import ReadYourWrites, WaitTimeout, wait_for

__all__ = [
    "AtLeastOnce",
    "Backoff",
    "Changes",
    "Group",
    "Inline",
    "InvalidHandler",
    "NotFound",
    "ParkedSources",
    "ProjectionFailed",
    "ReadYourWrites",
    "Recovery",
    "Retries",
    "RunSettings",
    "StatusObserver",
    "Table",
    "TableError",
    "WaitTimeout",
    "database_dsn",
    "events",
    "handles",
    "handles_group",
    "install",
    "live_events",
    "projection",
    "reacts",
    "read_model",
    "run",
    "wait_for",
]
__all__ += journal.__all__  # an application imports the journal from here, too
