from __future__ import annotations

import copy
import pickle
from uuid import NAMESPACE_URL, UUID, uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from journal.foreign.event_ids import event_ids

ID_OF = event_ids("orders")


@given(st.text(max_size=40).filter(lambda text: text.isprintable()), st.integers(1, 2**63 - 1))
def test_an_id_is_that_of_uuid5(source_id: str, seq_nr: int) -> None:
    made = ID_OF(source_id, seq_nr)
    expected = uuid5(uuid5(NAMESPACE_URL, "slice-projections:orders"), f"{source_id}/{seq_nr}")

    assert made == expected
    assert hash(made) == hash(expected)
    assert (str(made), repr(made), made.bytes) == (str(expected), repr(expected), expected.bytes)
    assert (made.version, made.variant, made.is_safe) == (5, expected.variant, expected.is_safe)


def test_an_id_is_a_uuid_wherever_one_is_taken() -> None:
    class Model(BaseModel):
        event_id: UUID

    made = ID_OF("shop-1", 1)
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == made
    assert Model(event_id=made).model_dump_json() == f'{{"event_id":"{made}"}}'
    assert sorted([ID_OF("b", 2), made]) == sorted([made, ID_OF("b", 2)])
    with pytest.raises(TypeError, match="immutable"):
        made.int = 1  # type: ignore[misc]
