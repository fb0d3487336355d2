"""The monitor: a web page of every slice's lag, live, and the few things that can be done about it."""

from projections.web.app import monitor_app
from projections.web.feed import Feed

__all__ = ["Feed", "monitor_app"]
