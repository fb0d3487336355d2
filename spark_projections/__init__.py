"""
Batch projections: the journal as a DataFrame, read models built again, history as files.

Names are imported when they are asked for: a process that folds slices needs none of what others do.
"""

from pathlib import Path
from runpy import run_path
from typing import TYPE_CHECKING

# Before the first import of what may be a package of the application; an installation without sources goes unchecked.
if (_check := Path(__file__).parent.parent / "journal" / "import_names.py").exists():
    run_path(str(_check))["check_import_names"]("journal", "offsets", "projections")

from projections.lazy import lazy_names

if TYPE_CHECKING:
    from journal import DatabaseError as DatabaseError
    from journal import InvalidValue as InvalidValue
    from journal import ProjectionsError as ProjectionsError
    from projections import TableError as TableError
    from spark_projections.archive.history import read_history as read_history
    from spark_projections.engine.session import spark_running as spark_running
    from spark_projections.errors import RebuildError as RebuildError
    from spark_projections.rebuilds.options import RebuildOptions as RebuildOptions
    from spark_projections.rebuilds.rebuilding import rebuild as rebuild
    from spark_projections.source.source import JournalDataSource as JournalDataSource
    from spark_projections.source.source import journal_frame as journal_frame
    from spark_projections.source.source import read_journal as read_journal

__all__, __getattr__, __dir__ = lazy_names()
