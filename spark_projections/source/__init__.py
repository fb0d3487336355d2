"""The journal as a data source of Spark, for batches and streams."""
