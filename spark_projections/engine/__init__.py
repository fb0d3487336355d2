"""Where batches run: Java, the Spark session, and the same function over many parts."""
