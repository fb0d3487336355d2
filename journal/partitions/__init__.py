"""Keeping the partitions: made ahead, clustered by slice, dropped when nobody needs them any more."""

from journal.partitions.chore import maintaining, take_turn
from journal.partitions.clustering import ClusteredPartition, cluster
from journal.partitions.listing import Holder, Partition, partitions
from journal.partitions.maintenance import Maintained, maintain
from journal.partitions.making import MaintainedPartition, make_partitions
from journal.partitions.pg_cron import CronJob, schedule
from journal.partitions.retention import Archive, DroppedPartition, UnreadRows
from journal.partitions.settings import (
    InvalidPartitionSetting,
    PartitionSettings,
    change_partition_settings,
    partition_settings,
)

__all__ = [
    "Archive",
    "ClusteredPartition",
    "CronJob",
    "DroppedPartition",
    "Holder",
    "InvalidPartitionSetting",
    "Maintained",
    "MaintainedPartition",
    "Partition",
    "PartitionSettings",
    "UnreadRows",
    "change_partition_settings",
    "cluster",
    "maintain",
    "maintaining",
    "make_partitions",
    "partition_settings",
    "partitions",
    "schedule",
    "take_turn",
]
