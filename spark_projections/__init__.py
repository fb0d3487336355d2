"""
Batch projections: the journal as a DataFrame, read models built anew, history as files.

Names are imported when they are asked for: a process that folds slices needs none of what others do.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_projections.archive.history import read_history as read_history
    from spark_projections.engine.session import spark_running as spark_running
    from spark_projections.engine.session import spark_session as spark_session
    from spark_projections.errors import NotRebuildable as NotRebuildable
    from spark_projections.errors import RebuildError as RebuildError
    from spark_projections.errors import RebuildFailed as RebuildFailed
    from spark_projections.errors import RebuildUnderWay as RebuildUnderWay
    from spark_projections.errors import SwapRefused as SwapRefused
    from spark_projections.rebuilds.cleaning import cancel_rebuild as cancel_rebuild
    from spark_projections.rebuilds.cleaning import drop_old_tables as drop_old_tables
    from spark_projections.rebuilds.options import Progress as Progress
    from spark_projections.rebuilds.options import RebuildOptions as RebuildOptions
    from spark_projections.rebuilds.options import RebuildResult as RebuildResult
    from spark_projections.rebuilds.rebuilding import rebuild as rebuild
    from spark_projections.source.source import JournalDataSource as JournalDataSource
    from spark_projections.source.source import journal_frame as journal_frame
    from spark_projections.source.source import read_journal as read_journal

_PLACES = {
    "archive.history": ("read_history",),
    "engine.session": ("spark_running", "spark_session"),
    "errors": ("NotRebuildable", "RebuildError", "RebuildFailed", "RebuildUnderWay", "SwapRefused"),
    "rebuilds.cleaning": ("cancel_rebuild", "drop_old_tables"),
    "rebuilds.options": ("Progress", "RebuildOptions", "RebuildResult"),
    "rebuilds.rebuilding": ("rebuild",),
    "source.source": ("JournalDataSource", "journal_frame", "read_journal"),
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names}

__all__ = sorted(_MODULES)  # noqa: PLE0605 - a list of texts, which the linter does not see


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
