"""Keeping the partitions: made ahead, clustered by slice, dropped when nobody needs them any more."""

from journal.errors import DatabaseError, InvalidValue, SchemaError
from journal.partitions.clustering import ClusteredPartition as ClusteredPartition
from journal.partitions.clustering import cluster as cluster
from journal.partitions.dropping import Archive as Archive
from journal.partitions.dropping import DroppedPartition as DroppedPartition
from journal.partitions.listing import Partition
from journal.partitions.listing import partitions as partitions
from journal.partitions.listing import unmaintained as unmaintained
from journal.partitions.maintenance import Maintained as Maintained
from journal.partitions.maintenance import maintain
from journal.partitions.making import MaintainedPartition as MaintainedPartition
from journal.partitions.periodic import maintaining as maintaining
from journal.partitions.pg_cron import schedule as schedule
from journal.partitions.settings import PartitionSettings as PartitionSettings
from journal.partitions.settings import (
    change_partition_settings,
    partition_settings,
)

__all__ = [
    "DatabaseError",
    "InvalidValue",
    "Partition",
    "SchemaError",
    "change_partition_settings",
    "maintain",
    "partition_settings",
]
