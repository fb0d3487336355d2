"""The page on which tenants look after their webhooks themselves: an application to mount, or to link to."""

from journal import InvalidValue
from projections.webhooks.page.app import webhooks_page
from projections.webhooks.page.links import PageLinks
from projections.webhooks.page.theme import PageTheme

__all__ = [
    "InvalidValue",
    "PageLinks",
    "PageTheme",
    "webhooks_page",
]
