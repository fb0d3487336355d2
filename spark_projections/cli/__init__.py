"""The commands of batches."""

from projections.terminal.group import LazyCommand

__all__ = ["COMMANDS"]

COMMANDS = {
    "rebuild": LazyCommand(
        "spark_projections.cli.rebuild:rebuild",
        "Build a read model again from the journal, and swap it in.",
    ),
    "archive": LazyCommand(
        "spark_projections.cli.archive:archive",
        "Keep closed partitions as Parquet files, and bring them back.",
    ),
    "backfill": LazyCommand(
        "spark_projections.cli.backfill:backfill", "Load history from files into the journal."
    ),
}
