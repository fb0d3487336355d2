"""Operations on the topics that there are."""

from __future__ import annotations

from dataclasses import dataclass

from projections.webhooks.api.operations import Call, ListPage, NoBody, Operations, Query
from projections.webhooks.tenant_rows import DESCRIBED, Json
from projections.webhooks.topics import Topic

topic_operations = Operations("topics")


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic that there is."""

    __pydantic_config__ = DESCRIBED

    topic: str
    description: str
    """What happens before a message of it is sent."""
    data_schema: Json
    """The JSON Schema of the data of its messages; null: nothing is promised of it."""
    examples: tuple[Json, ...]
    """Data of messages."""

    @classmethod
    def of(cls, topic: str | Topic) -> TopicView:
        """What is shown of a topic."""
        known = Topic(topic) if isinstance(topic, str) else topic
        return cls(known.name, known.description, known.schema, known.written_examples)


class TopicPage(ListPage[TopicView]):
    """All topics, by name."""


@topic_operations.add("GET", "/v1/topics")
async def list_topics(call: Call[Query, NoBody]) -> TopicPage:
    """List the topics that there are; none where any can be asked for."""
    found = sorted(map(TopicView.of, call.services.topics), key=lambda each: each.topic)
    return TopicPage(data=tuple(found), next=None)
