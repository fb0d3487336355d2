"""Keeping the partitions: made ahead, clustered by slice, dropped when nobody needs them any more."""

from journal.errors import DatabaseError, SchemaError
from journal.partitions.chore import maintaining
from journal.partitions.chore import take_turn as take_turn
from journal.partitions.clustering import ClusteredPartition as ClusteredPartition
from journal.partitions.clustering import cluster as cluster
from journal.partitions.listing import Partition, partitions
from journal.partitions.maintenance import Maintained as Maintained
from journal.partitions.maintenance import maintain
from journal.partitions.making import MaintainedPartition as MaintainedPartition
from journal.partitions.making import make_partitions as make_partitions
from journal.partitions.pg_cron import schedule as schedule
from journal.partitions.retention import Archive as Archive
from journal.partitions.retention import DroppedPartition as DroppedPartition
from journal.partitions.retention import UnreadRows as UnreadRows
from journal.partitions.settings import (
    InvalidPartitionSetting,
    PartitionSettings,
    change_partition_settings,
    partition_settings,
)

__all__ = [
    "DatabaseError",
    "InvalidPartitionSetting",
    "Partition",
    "PartitionSettings",
    "SchemaError",
    "change_partition_settings",
    "maintain",
    "maintaining",
    "partition_settings",
    "partitions",
]
