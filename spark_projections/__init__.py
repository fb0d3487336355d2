"""
Batch projections: the journal as a DataFrame, read models built anew, history as files.

Names are imported when they are asked for: a process that folds slices needs none of what others do.
"""

from typing import TYPE_CHECKING

from projections.lazy import lazy_names

if TYPE_CHECKING:
    from journal import DatabaseError as DatabaseError
    from journal import ProjectionsError as ProjectionsError
    from offsets import UnknownProjection as UnknownProjection
    from projections import TableError as TableError
    from spark_projections.archive.files import ArchiveError as ArchiveError
    from spark_projections.archive.history import read_history as read_history
    from spark_projections.engine.jvm import JavaNotFound as JavaNotFound
    from spark_projections.engine.jvm import JvmFailed as JvmFailed
    from spark_projections.engine.jvm import UnsupportedJava as UnsupportedJava
    from spark_projections.engine.session import SparkTooOld as SparkTooOld
    from spark_projections.engine.session import spark_running as spark_running
    from spark_projections.engine.session import spark_session as spark_session
    from spark_projections.errors import NotRebuildable as NotRebuildable
    from spark_projections.errors import RebuildError as RebuildError
    from spark_projections.errors import RebuildFailed as RebuildFailed
    from spark_projections.errors import RebuildUnderWay as RebuildUnderWay
    from spark_projections.errors import SwapRefused as SwapRefused
    from spark_projections.rebuilds.cleaning import cancel_rebuild as cancel_rebuild
    from spark_projections.rebuilds.cleaning import drop_old_tables as drop_old_tables
    from spark_projections.rebuilds.options import RebuildOptions as RebuildOptions
    from spark_projections.rebuilds.options import RebuildProgress as RebuildProgress
    from spark_projections.rebuilds.options import RebuildResult as RebuildResult
    from spark_projections.rebuilds.rebuilding import rebuild as rebuild
    from spark_projections.source.options import InvalidOption as InvalidOption
    from spark_projections.source.source import JournalDataSource as JournalDataSource
    from spark_projections.source.source import journal_frame as journal_frame
    from spark_projections.source.source import read_journal as read_journal

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".archive.files": "ArchiveError",
        ".archive.history": "read_history",
        ".engine.jvm": "JavaNotFound JvmFailed UnsupportedJava",
        ".engine.session": "SparkTooOld spark_running spark_session",
        ".errors": "NotRebuildable RebuildError RebuildFailed RebuildUnderWay SwapRefused",
        ".rebuilds.cleaning": "cancel_rebuild drop_old_tables",
        ".rebuilds.options": "RebuildOptions RebuildProgress RebuildResult",
        ".rebuilds.rebuilding": "rebuild",
        ".source.options": "InvalidOption",
        ".source.source": "JournalDataSource journal_frame read_journal",
        "journal": "DatabaseError ProjectionsError",
        "offsets": "UnknownProjection",
        "projections": "TableError",
    },
)
