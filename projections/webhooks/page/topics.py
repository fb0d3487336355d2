"""Topics: what messages can be about, and what their data is."""

from __future__ import annotations

from projections.extras import from_extra
from projections.webhooks.api.problems import Problem
from projections.webhooks.api.topic_operations import list_topics
from projections.webhooks.page.visit import Visit

with from_extra("webhooks"):
    from starlette.responses import Response


async def listed(visit: Visit) -> Response:
    """All topics."""
    return visit.render("topics.html", topics=(await visit.ask(list_topics)).data, here="topics")


async def shown(visit: Visit) -> Response:
    """One topic, with its schema and examples."""
    name = visit.request.path_params["topic"]
    for topic in (await visit.ask(list_topics)).data:
        if topic.topic == name:
            return visit.render("topic.html", topic=topic, here="topics")
    raise Problem(404, "unknown_topic", "there is no such topic")
