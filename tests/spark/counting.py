"""A data source of six rows, for tests of the session; workers import it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType


class Counting(DataSource):
    @classmethod
    def name(cls) -> str:
        return "counting"

    def schema(self) -> str:
        return "n bigint"

    def reader(self, schema: StructType) -> DataSourceReader:
        return CountingReader()


class CountingReader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Where COUNTING_GATE names a pipe, wait until its writer lets go of it; without the pipe, go on."""
        if gate := os.environ.get("COUNTING_GATE"):
            with suppress(FileNotFoundError):
                Path(gate).read_bytes()
        yield pa.RecordBatch.from_pydict({"n": pa.array([1, 2, 3], pa.int64())})
