"""All calls that a schedule may have."""

from __future__ import annotations

from tests.simulation import calls, elsewhere_calls, group_calls, import_calls, inline_calls, webhook_calls
from tests.simulation.calls import Call, Facts

_ANY = [*calls.CALLS, *elsewhere_calls.CALLS, *inline_calls.CALLS]
_CALLS = [*_ANY, *import_calls.CALLS, *group_calls.CALLS, *webhook_calls.CALLS]
CODES = len(_ANY)
"""Of calls that make sense in any order: those with the codes up to this."""
CODE_OF = {call.__name__: code for code, call in enumerate(_CALLS)}


def call_of(facts: Facts, code: int, a: int, b: int) -> Call:
    """The call that numbers stand for; ``a`` and ``b`` choose its arguments."""
    return _CALLS[code](facts, a, b)
