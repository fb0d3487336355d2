"""
What all commands share: options, output, durations, connections, logs and signals.

Commands of other packages import the names below from here; those of ``projections`` import the module of each. Names
are imported when they are asked for: help needs none of what prints tables.
"""

from typing import TYPE_CHECKING

from projections.lazy import lazy_names

if TYPE_CHECKING:
    from projections.terminal.command_group import INTERRUPTED as INTERRUPTED
    from projections.terminal.command_group import CommandGroup as CommandGroup
    from projections.terminal.command_group import ComparingCommand as ComparingCommand
    from projections.terminal.command_group import LazyCommand as LazyCommand
    from projections.terminal.command_group import ListGroup as ListGroup
    from projections.terminal.commands import Arg as Arg
    from projections.terminal.commands import Dsn as Dsn
    from projections.terminal.commands import Journal as Journal
    from projections.terminal.commands import JournalPrimary as JournalPrimary
    from projections.terminal.commands import Opt as Opt
    from projections.terminal.commands import ReadSide as ReadSide
    from projections.terminal.commands import derived as derived
    from projections.terminal.connection import Sides as Sides
    from projections.terminal.connection import connected as connected
    from projections.terminal.connection import connected_journal as connected_journal
    from projections.terminal.connection import sides as sides
    from projections.terminal.connection import visit as visit
    from projections.terminal.connection import visit_database as visit_database
    from projections.terminal.options import check_no_address as check_no_address
    from projections.terminal.output import Answer as Answer
    from projections.terminal.output import Columns as Columns
    from projections.terminal.output import counted as counted
    from projections.terminal.output import listing as listing
    from projections.terminal.output import picked as picked
    from projections.terminal.output import printable as printable
    from projections.terminal.output import shortened as shortened
    from projections.terminal.output import table_of as table_of
    from projections.terminal.output import table_of_values as table_of_values
    from projections.terminal.output import values_of as values_of
    from projections.terminal.targets import load_projections as load_projections

__all__, __getattr__, __dir__ = lazy_names()
