"""
Read your own writes: wait until projections have handled what was appended.

:func:`wait_for` waits in the code that has appended, or that has got a token of it; :class:`ReadYourWrites` does the
same for the requests of an ASGI application.
"""

from projections.waiting.middleware import ReadYourWrites
from projections.waiting.waiter import WaitTimeout, wait_for

__all__ = ["ReadYourWrites", "WaitTimeout", "wait_for"]
