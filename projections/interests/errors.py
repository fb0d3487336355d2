"""Errors of interests; whatever has an interest raises them as its own."""

from __future__ import annotations

from journal import InvalidValue, ProjectionsError


class InvalidTopic(InvalidValue):
    """A text is not a topic, or not a pattern of topics; the message names it."""


class InvalidFilter(InvalidValue):
    """A filter is invalid; the message has the path of what is wrong."""


class FilterTooCostly(ProjectionsError):
    """A filter would look at more of an event than it may: whether the event is wanted is not known."""

    code = "filter_too_costly"
