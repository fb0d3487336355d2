"""Keeping the database: partitions made ahead, old ones dropped when nobody needs them, subscriptions expired."""

from projections.maintenance.chore import maintaining, take_turn
from projections.maintenance.listing import Holder, Partition, partitions
from projections.maintenance.one_run import Maintained, maintain
from projections.maintenance.pg_cron import CronJob, schedule
from projections.maintenance.retention import Archive, DroppedPartition, UnreadRows
from projections.maintenance.settings import (
    InvalidPartitionSetting,
    PartitionSettings,
    change_partition_settings,
    partition_settings,
)

__all__ = [
    "Archive",
    "CronJob",
    "DroppedPartition",
    "Holder",
    "InvalidPartitionSetting",
    "Maintained",
    "Partition",
    "PartitionSettings",
    "UnreadRows",
    "change_partition_settings",
    "maintain",
    "maintaining",
    "partition_settings",
    "partitions",
    "schedule",
    "take_turn",
]
