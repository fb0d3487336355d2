"""Documentation, messages, docstrings and comments use the usual word."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
USUAL = {
    r"can not(?! only)": "cannot",
    r"anew": "again, from scratch",
    r"(?<![\"|.])(?-i:[Bb]eside)(?! if| =|[\"\]:(.])": "alongside, next to, in addition to, compared with",
    r"at hand": "current, available",
    r"what (?:came|comes|became|becomes) of": "the outcome of, what happens to",
    r"for ever": "forever",
    r"(?:is|are|was|were) told(?! otherwise)": "is notified, gets, is reported",
    r"(?<!there )(?:is|are) none of": "is not one of",
    r"cannot be so": "is invalid",
    r"once more": "again, a second time",
    r"(?<!re)(?<!com)mend(?:s|ed|ing)?": "fix, repair",
    r"amiss": "wrong",
    r"in vain": "without effect",
    r"nought|naught": "zero",
    r"fares?": "how well it works",
    r"save for": "except for",
    r"comes? to be|came to be": "becomes",
    r"(?<!there )is no (?:valid|number|time|table|dead letter|standby|reason|error|limit|JSON|length)": "is not a",
    r"whence|thence|hitherto|thereof|wherein|lest|ere|whilst|withal": "a word of this century",
    r"to whom|for whom|by whom": "name the one that is meant",
    r"as often as (?:you|it|they|one) likes?": "any number of times",
    r"of it the": "the … of it",
}
"""Patterns of words that readers stumble over, and what is usual."""
_QUOTED = re.compile(r"`[^`\n]*`")
_PATTERNS = {re.compile(rf"\b(?:{words})\b", re.IGNORECASE): usual for words, usual in USUAL.items()}


def texts() -> Iterator[tuple[str, str]]:
    """Files that people read, by their paths, without what stands between backquotes."""
    pages = [
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        ROOT / "tests/README.md",
        *(ROOT / "docs").rglob("*.md"),
    ]
    code = [
        file
        for folder in ("journal", "offsets", "projections", "spark_projections", "docs/site", "sql")
        for file in (ROOT / folder).rglob("*")
        if file.suffix in {".py", ".sql", ".md"}
    ]
    for file in sorted({*pages, *code}):
        yield file.relative_to(ROOT).as_posix(), _QUOTED.sub("``", file.read_text())


def unusual(text: str) -> Iterator[str]:
    """Say what is unusual in a text, with its line and the usual words."""
    for pattern, usual in _PATTERNS.items():
        for found in pattern.finditer(text):
            yield f"{text.count(chr(10), 0, found.start()) + 1}: {found[0]!r}: write {usual!r}"


@pytest.mark.slow
def test_words_are_the_usual_ones() -> None:
    found = [f"{path}:{each}" for path, text in texts() for each in unusual(text)]

    assert found == [], "\n".join(found)


@pytest.mark.parametrize(
    "sentence",
    [
        "A worker can not write.",
        "It is read anew.",
        "A table beside the old one.",
        "The caller is told the number.",
        "'x' is none of a, b",
        "an endpoint cannot be so: url",
        "A number is no time.",
        "The readers for whom it was lost.",
        "Mend it.",
    ],
)
def test_an_unusual_word_is_found(sentence: str) -> None:
    assert len(list(unusual(sentence))) == 1


@pytest.mark.parametrize(
    "sentence",
    [
        "There is no such group.",
        "We recommend it.",
        "unless it is told otherwise",
        "`beside` is a value",
        "self._beside.x",
    ],
)
def test_what_is_usual_passes(sentence: str) -> None:
    assert list(unusual(sentence.replace("`beside`", "``"))) == []
