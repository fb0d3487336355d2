"""The commands; `projections.cli` imports them when they run."""
