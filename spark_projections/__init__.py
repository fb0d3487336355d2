"""Batch projections on Spark: empty in this version."""
