"""Which text PostgreSQL can store; drivers fail in ways of their own on other text, some as if the connection broke."""

from __future__ import annotations


def unstorable(text: str) -> str | None:
    """What a text holds that PostgreSQL cannot store, in words for an error; None: it can store the text."""
    if "\0" in text:
        return "the character NUL"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "half of a surrogate pair"
    return None
