"""The commands of batches."""

from projections.terminal import LazyCommand

__all__ = ["COMMANDS"]

COMMANDS = {
    "rebuild": LazyCommand(
        "spark_projections.cli.rebuild:rebuild",
        "Build a read model again from the journal, and swap it in.",
    ),
    "rebuilds": LazyCommand("spark_projections.cli.rebuilds:rebuilds", "List, cancel and clean up rebuilds."),
    "verify": LazyCommand(
        "spark_projections.cli.verify:verify",
        "Compare a read model with the journal, and list rows that differ.",
    ),
    "archive": LazyCommand(
        "spark_projections.cli.archive:archive",
        "Keep closed partitions as Parquet files, and bring them back.",
    ),
    "backfill": LazyCommand(
        "spark_projections.cli.backfill:backfill", "Load history from files into the journal."
    ),
}
