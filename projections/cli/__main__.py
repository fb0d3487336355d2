"""``python -m projections.cli``: the same as ``projections``."""

from projections.cli import main

main(prog_name="projections")
