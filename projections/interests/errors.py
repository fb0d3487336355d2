"""Errors of interests; whatever has an interest raises them as its own."""

from __future__ import annotations

from journal import ProjectionsError


class InvalidTopic(ProjectionsError, ValueError):
    """A text is not a topic, or not a pattern of topics; the message names it."""
