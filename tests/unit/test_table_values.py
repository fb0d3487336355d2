"""Values on their way into columns, and what the catalogue says of those."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from projections.running.table_catalogue import _scale
from projections.running.table_values import Column, ValueKind, encode


def column(kind: ValueKind, scale: int | None = None) -> Column:
    return Column("c", kind, "pg_catalog.numeric", "numeric", scale, has_default=False)


@pytest.mark.parametrize(
    ("kind", "values", "sent"),
    [
        (ValueKind.NUMERIC, [0.1, 1, True, None], [Decimal("0.1"), Decimal(1), Decimal(1), None]),
        (ValueKind.INTEGER, [True, 2, None], [1, 2, None]),
        (ValueKind.FLOAT, [1, Decimal("0.5")], [1.0, 0.5]),
        (ValueKind.JSON, [None, {"a": 0.1}], [None, '{"a":0.1}']),
    ],
)
def test_values_are_sent_as_what_they_print_as(kind: ValueKind, values: list[Any], sent: list[Any]) -> None:
    found = encode(column(kind), values, exact=False)

    assert found == sent
    assert list(map(type, found)) == list(map(type, sent))


@pytest.mark.parametrize(
    ("typmod", "scale"), [(-1, None), ((6 << 16 | 2) + 4, 2), ((4 << 16 | 0x7FE) + 4, -2), ((5 << 16) + 4, 0)]
)
def test_a_scale_may_be_below_zero(typmod: int, scale: int | None) -> None:
    assert _scale(typmod) == scale


def test_tens_are_not_added_to_a_column_that_keeps_hundreds() -> None:
    with pytest.raises(ValueError, match="more digits after the point"):
        encode(column(ValueKind.NUMERIC, -2), [50], exact=True)
