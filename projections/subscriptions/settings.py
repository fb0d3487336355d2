"""Settings of all who read and publish: every field with its unit, its default, and what it trades."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from journal import PAGE_BYTES, PollPacing
from offsets.leases import LeaseSettings
from projections.failing import Backoff, Retries
from projections.http.server_sent_events import KEEP_ALIVE

RETRIES_OF_OUTAGES = Retries([60])
"""When a batch is tried again that is not at fault, such as in an outage, and whose handler has no retries left."""
_NONE = timedelta(0)


class ConsumerSettings(LeaseSettings):
    """How a process reads for a group."""

    page_size: int = Field(default=1000, ge=1, le=100_000)
    """Matches that are read at a time; a handler gets at most this number in a call. Memory holds up to ``read_ahead``
    pages for each range."""

    page_bytes: int = Field(default=4 * 2**20, ge=1)
    """A page ends with the match with which its payloads and metadata reach this size in bytes; one has up to 16 MiB.
    Halved when the process has no memory left, or the database has not answered in time."""

    read_ahead: int = Field(default=10, ge=1)
    """Pages that quick handlers may be ahead of the slowest one: throughput against what a failure repeats."""

    handler_timeout: timedelta = Field(default=timedelta(minutes=1), gt=_NONE)
    """A call of a handler that takes longer is cancelled, and has failed; a handler may have a limit of its own."""

    grace: timedelta = Field(default=timedelta(seconds=30), gt=_NONE)
    """How long a stop waits for what handlers have begun with."""

    pacing: PollPacing = PollPacing(timedelta(milliseconds=10), timedelta(milliseconds=250))
    """How often the database is asked for news: latency against queries."""

    restart: Backoff = Backoff(timedelta(milliseconds=200), timedelta(seconds=30))
    """Pauses before a range whose handler failed starts again, a lease at most, and before a lost database is asked
    again, a fifth of it."""

    retries_every: timedelta = Field(default=timedelta(seconds=3), gt=_NONE)
    """How often failed batches that are due are looked for, such as those of a process that died; those that this one
    has failed on are taken when they are due."""

    keep_every: timedelta = Field(default=timedelta(minutes=1), gt=_NONE)
    """How often subscriptions are said to be in use: more often than they expire."""


class PublisherSettings(BaseModel):
    """How a publisher gathers what it stores."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    batch: int = Field(default=2500, ge=1, le=10_000)
    """Store at the latest when this number wait; never more in one transaction."""

    within: timedelta = Field(default=timedelta(milliseconds=10), ge=_NONE)
    """Store what waits after this time: latency against transactions."""

    buffer: int = Field(default=10_000, ge=1)
    """How many may wait; more have to wait before they are accepted."""

    restart: Backoff = Backoff(timedelta(milliseconds=100), timedelta(seconds=5))
    """Pauses before a database that cannot be reached is tried again."""

    patience: timedelta = Field(default=timedelta(seconds=30), ge=_NONE)
    """How long a batch is tried again; then it has failed, and whoever waits for it gets the error."""


class ListenerSettings(BaseModel):
    """How those who listen are served."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    pacing: PollPacing = PollPacing(timedelta(milliseconds=10), timedelta(milliseconds=250))
    """How often the database is asked for news: latency against queries."""

    page: int = Field(default=500, ge=1)
    """Matches that are read at a time."""

    page_bytes: int = Field(default=PAGE_BYTES, ge=1)
    """A page ends with the match with which payloads and metadata reach this size in bytes; one has up to 16 MiB."""

    buffer: int = Field(default=1000, ge=1)
    """Matches that may wait for one who listens; one that has more is too slow. Each is kept once for all."""

    expires_after: timedelta = Field(default=timedelta(minutes=15), gt=_NONE)
    """How long a subscription stays when nobody listens any more, and so how long a client of a stream may be away."""

    keep_every: timedelta = Field(default=timedelta(minutes=1), gt=_NONE)
    """How often the database learns which subscriptions are in use."""

    patience: timedelta = Field(default=timedelta(seconds=10), gt=_NONE)
    """How long the database may take to answer; then the connection counts as lost."""

    retry: Backoff = Backoff(timedelta(milliseconds=200), timedelta(seconds=5))
    """Pauses before a lost connection is tried again."""

    @model_validator(mode="after")
    def _is_kept_before_it_expires(self) -> Self:
        if self.keep_every * 2 > self.expires_after:
            raise ValueError(
                f"expires_after is {self.expires_after}, less than twice keep_every, {self.keep_every}: "
                "subscriptions would expire in use"
            )
        return self


class StreamSettings(BaseModel):
    """How streams are served."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_clients: int = Field(default=1000, ge=1)
    """Clients at a time; one more is answered 503."""

    max_clients_per: int = Field(default=100, ge=1)
    """Clients of one address, or of one user, at a time; one more is answered 429."""

    buffer: int = Field(default=1000, ge=1)
    """Events that may wait until a client takes them; one that has more is too slow, and is ended."""

    replay_limit: int = Field(default=10_000, ge=0)
    """Events that a client may have missed; one that has missed more begins again, which 204 tells it."""

    keep_alive: timedelta = Field(default=KEEP_ALIVE, gt=_NONE)
    """A client that nothing comes for is sent a comment after this time, so that proxies leave the connection open."""

    retry: timedelta = Field(default=timedelta(seconds=2), ge=_NONE)
    """The time after which a browser comes again; where all of them have to, they spread over three times as long."""

    patience: timedelta = Field(default=timedelta(seconds=30), gt=_NONE)
    """How long a client may take to let something through, and the database to let a client in."""

    grace: timedelta = Field(default=timedelta(seconds=1), ge=_NONE)
    """How long a stream that is ended may take to end in order."""

    lookups: int = Field(default=4, ge=1)
    """Connections of the pool that clients who come may use at a time; one more is the reader's."""

    end_on_signals: bool = True
    """End all streams when the process is to end (SIGTERM, SIGINT): servers wait for them otherwise."""
