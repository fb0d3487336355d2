"""The slice of a source is the same number everywhere, and ranges tile all slices."""

from __future__ import annotations

from typing import cast

import psycopg
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from journal import NUMBER_OF_SLICES, SliceRange, slice_of, slice_ranges
from tests.fixtures.examples import examples

# What Akka and Pekko test their own with.
VECTORS = {
    "": 0,
    "p1": 449,
    "p2": 450,
    "p10": 655,
    "p11": 656,
    "p92": 905,
    "p108": 905,
    **dict.fromkeys(["p500", "p621", "p742", "p863", "p984", "p3080", "p4290", "p20180"], 645),
    "p-0960": 576,
    "p-6009": 640,
    "p-3039": 832,
    "p-2049": 896,
    "p-08071": 101,
}

# What PostgreSQL can store: no NUL, no half of a surrogate pair.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


def java_slice(text: str) -> int:
    """As Java computes it: 32-bit overflow at every step, and a remainder that keeps the sign."""
    hashed = 0
    for character in text:
        code = ord(character)
        units = [code] if code < 0x10000 else [0xD7C0 + (code >> 10), 0xDC00 + (code & 0x3FF)]
        for unit in units:
            hashed = (31 * hashed + unit + 2**31) % 2**32 - 2**31
    remainder = hashed - int(hashed / 1024) * 1024
    return abs(remainder)


@pytest.mark.parametrize(("source_id", "expected"), VECTORS.items())
def test_known_slices(source_id: str, expected: int) -> None:
    assert slice_of(source_id) == expected


@given(texts)
@example("polygenelubricants")  # its hash is -2**31, which has no positive twin
@example("\U0001f600" * 9)
@example("\uffff\U00010000\U0010ffff")
def test_slices_are_those_of_java(source_id: str) -> None:
    assert slice_of(source_id) == java_slice(source_id)


def test_half_a_surrogate_pair_has_no_slice() -> None:
    with pytest.raises(UnicodeEncodeError):
        slice_of("\ud800")


@pytest.fixture(scope="module")
def connection(databases: object, template: str) -> object:
    from tests.fixtures.postgres import Databases

    with cast("Databases", databases).fresh(template) as dsn, psycopg.connect(dsn) as opened:
        yield opened


@given(st.lists(texts | st.sampled_from(list(VECTORS)), min_size=20, max_size=100))
@example(list(VECTORS))
@example([("~}|" * 86)[:length] for length in range(256)])  # ASCII goes several characters at a step
@example(["\x7f" * length + "é" for length in range(20)])
@example([chr(code) for code in range(1, 0x11000, 7) if not 0xD800 <= code < 0xE000])
@settings(max_examples=examples(40))
def test_sql_and_python_agree(connection: psycopg.Connection, source_ids: list[str]) -> None:
    found = connection.execute(
        "SELECT projections.slice_of_v1(s) FROM unnest(%s::text[]) WITH ORDINALITY AS t (s, n) ORDER BY n",
        [source_ids],
    ).fetchall()

    assert [number for (number,) in found] == [slice_of(source_id) for source_id in source_ids]


def test_ranges_tile_all_slices_evenly_for_every_number_of_them() -> None:
    for count in range(1, NUMBER_OF_SLICES + 1):
        ranges = slice_ranges(count)
        sizes = {r.max_slice - r.min_slice + 1 for r in ranges}

        assert len(ranges) == count
        assert [n for r in ranges for n in range(r.min_slice, r.max_slice + 1)] == list(range(1024)), count
        assert max(sizes) - min(sizes) <= 1, count


@pytest.mark.parametrize("count", [0, -1, 1025])
def test_a_number_of_ranges_out_of_bounds_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match="1 to 1024"):
        slice_ranges(count)


@pytest.mark.parametrize(("low", "high"), [(-1, 5), (6, 5), (0, 1024)])
def test_a_range_out_of_bounds_is_refused(low: int, high: int) -> None:
    with pytest.raises(ValueError, match="slice range"):
        SliceRange.of(low, high)
