"""The events of the demo: the course of each flight, told by its plane."""

from __future__ import annotations

from datetime import date, datetime, timedelta

from pydantic import BaseModel, NaiveDatetime

from journal import Event
from projections.demo.flights import Flight, Moment

ENTITY_TYPE = "plane"
"""Each plane is a source."""


class Departed(BaseModel):
    """A plane took off."""

    carrier: str
    flight: str
    origin: str
    destination: str
    at: NaiveDatetime
    """By the clock of the airport."""
    delay: int
    """Minutes; negative when early."""


class Landed(BaseModel):
    """A plane arrived."""

    carrier: str
    flight: str
    destination: str
    day: date
    """Of the planned departure."""
    at: NaiveDatetime
    """By the clock of the airport."""
    delay: int | None
    """Minutes; None when it had been diverted."""


class Cancelled(BaseModel):
    """A flight was called off."""

    carrier: str
    flight: str
    origin: str
    destination: str
    day: date


def source_of(flight: Flight) -> str:
    """
    The plane of a flight, by its tail number.

    A flight that was cancelled before it was given a plane belongs to a source of its carrier, ``unassigned-UA``.
    """
    return flight.tail_number or f"unassigned-{flight.carrier}"


def event_of(moment: Moment) -> Event:
    """The event that an entry of the timeline becomes."""
    flight = moment.flight
    return Event(source_of(flight), _landed(flight) if moment.landing else _departed(flight), ENTITY_TYPE)


def _landed(flight: Flight) -> Landed:
    return Landed(
        carrier=flight.carrier,
        flight=flight.number,
        destination=flight.destination,
        day=flight.day,
        at=_time(flight.landed_at or 0),
        delay=flight.arrival_delay,
    )


def _departed(flight: Flight) -> Departed | Cancelled:
    if flight.departed is None:
        return Cancelled(
            carrier=flight.carrier,
            flight=flight.number,
            origin=flight.origin,
            destination=flight.destination,
            day=flight.day,
        )
    return Departed(
        carrier=flight.carrier,
        flight=flight.number,
        origin=flight.origin,
        destination=flight.destination,
        at=_time(flight.departed_at),
        delay=flight.departure_delay or 0,
    )


def _time(minute: int) -> datetime:
    days, rest = divmod(minute, 1440)
    return datetime.fromordinal(days) + timedelta(minutes=rest)
