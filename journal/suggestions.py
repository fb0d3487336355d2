"""What was probably meant by a name that is not known."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """To end a message with: the known name that is most like the one that was written, as a question, or nothing."""
    by_lower = {one.lower(): one for one in known}
    found = get_close_matches(name.lower(), by_lower, n=1)
    return f". Did you mean {by_lower[found[0]]!r}?" if found else ""
