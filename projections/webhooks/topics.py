"""
Topics of messages, and those that an endpoint wants: `projections.interests.topics` says what its patterns match.

They are narrower than topics of subscriptions: ASCII letters, digits, `_` and `-`, and at most 128 characters.
Receivers of other companies compare them, and put them into addresses, headers and file names of their own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, PydanticUserError, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from projections.interests import InvalidTopic, TopicMatcher, parse_topics
from projections.webhooks.errors import InvalidEndpoint, InvalidMessage

CHALLENGE = "webhook.verification"
"""The topic of the request by which a URL shows that it wants webhooks."""

LONGEST_TOPIC = 128
MOST_TOPICS = 100

_TOPIC = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_PATTERN = re.compile(r"[A-Za-z0-9_*-]+(?:\.[A-Za-z0-9_*-]+)*")


@dataclass(frozen=True, slots=True)
class Topic:
    """
    A topic, with what tenants read about it.

    Args:
        name: As messages have it: ``flight.delayed``.
        description: What happens before a message of it is sent, in a sentence or two.
        model: What the data of its messages is an object of; its JSON Schema is shown. None: nothing is promised.
        examples: Data of messages: objects of the model, or anything that pydantic makes one of.

    Raises:
        InvalidValue: The name is not one of a topic, the model has no JSON Schema, or an example does not fit it.
    """

    name: str
    description: str = ""
    model: type[BaseModel] | None = None
    examples: Sequence[Any] = ()
    schema: dict[str, Any] | None = field(init=False, repr=False, compare=False)
    """The JSON Schema of its data, as messages are written; None: it has no model."""
    written_examples: tuple[Any, ...] = field(init=False, repr=False, compare=False)
    """The examples as messages are written."""

    def __post_init__(self) -> None:
        check_topic(self.name)
        # Made once, and not whenever a tenant asks.
        object.__setattr__(self, "schema", self._schema())
        examples = (self._written(place, each) for place, each in enumerate(self.examples, 1))
        object.__setattr__(self, "written_examples", tuple(examples))

    def _schema(self) -> dict[str, Any] | None:
        try:
            return None if self.model is None else self.model.model_json_schema(mode="serialization")
        except PydanticUserError as error:
            raise InvalidMessage(
                f"the model of topic {self.name!r} has no JSON Schema: {error.message[:200]}"
            ) from error

    def _written(self, place: int, example: Any) -> Any:
        try:
            return to_jsonable_python(example if self.model is None else self.model.model_validate(example))
        except ValidationError as error:
            raise InvalidMessage(
                f"example {place} of topic {self.name!r} does not fit {error.title}: "
                f"{error.errors(include_url=False)[0]['msg']}"
            ) from None
        except PydanticSerializationError as error:
            raise InvalidMessage(
                f"example {place} of topic {self.name!r} is not JSON: {str(error)[:200]}"
            ) from None


def names_of(topics: Iterable[str | Topic]) -> list[str]:
    """The names of topics that are given by name, or as :class:`Topic`."""
    return [each.name if isinstance(each, Topic) else each for each in topics]


def endpoint_topics(patterns: Iterable[str], known: Collection[str] | None = None) -> list[str]:
    """
    Check the topics of an endpoint, 1 to 100 patterns of up to 128 characters, and drop those that others cover.

    If the existing topics are known, a name must be one of them, and a pattern match one; else InvalidValue.
    """
    unique = list(dict.fromkeys([patterns] if isinstance(patterns, str) else patterns))
    if not 1 <= len(unique) <= MOST_TOPICS:
        raise InvalidEndpoint(
            f"an endpoint has 1 to {MOST_TOPICS} topics, not {len(unique)}; for every topic write '**'"
        )
    matchers = {pattern: _matcher(pattern) for pattern in unique}
    for pattern, matcher in matchers.items():
        if known is not None and pattern != "**" and not any(map(matcher.matches, known)):
            raise InvalidEndpoint(f"there is no topic {pattern!r}; topics are: {', '.join(sorted(known))}")
    return [
        pattern
        for pattern in unique
        if not any(matcher.covers(pattern) for other, matcher in matchers.items() if other != pattern)
    ]


def check_topic(topic: str) -> str:
    """Return the topic of a message: segments of ASCII letters, digits, `_` and `-`, with dots, to 128 characters."""
    if len(topic) > LONGEST_TOPIC or not _TOPIC.fullmatch(topic):
        raise InvalidMessage(
            f"a topic is segments of letters, digits, '_' and '-' with dots between, "
            f"up to {LONGEST_TOPIC} characters, not {topic[:LONGEST_TOPIC]!r}"
        )
    return topic


def _matcher(pattern: str) -> TopicMatcher:
    if len(pattern) > LONGEST_TOPIC or not _PATTERN.fullmatch(pattern):
        raise InvalidEndpoint(
            f"a topic is segments of letters, digits, '_', '-' and '*' with dots between, "
            f"up to {LONGEST_TOPIC} characters, not {pattern[:LONGEST_TOPIC]!r}"
        )
    try:
        return parse_topics([pattern])
    except InvalidTopic as error:
        raise InvalidEndpoint(str(error)) from None
