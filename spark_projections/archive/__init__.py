"""Closed partitions as Parquet files: written, compared, read with the journal, and brought back."""
