"""The lease of whoever holds slices, and how often it is prolonged."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

_NONE = timedelta(0)


class LeaseSettings(BaseModel):
    """How long a process holds its ranges without a heartbeat; the settings of each kind of process add their own."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    lease: timedelta = Field(default=timedelta(seconds=10), gt=_NONE)
    """How long a crashed process keeps others from its ranges. Safety does not depend on it."""

    heartbeat: timedelta = Field(default=timedelta(seconds=3), gt=_NONE)
    """How often the lease is prolonged, and processes that came or went, and ranges cut again, are noticed."""

    @model_validator(mode="after")
    def _lease_outlasts_heartbeats(self) -> Self:
        if self.heartbeat * 2 > self.lease:
            raise ValueError(
                f"a lease of {self.lease.total_seconds():g} s does not outlast two heartbeats, one every "
                f"{self.heartbeat.total_seconds():g} s: ranges would move all the time"
            )
        return self
