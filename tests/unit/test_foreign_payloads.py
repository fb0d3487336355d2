"""Payloads that Pekko's own serializers have made (tests/interop/pekko), decoded; and what cannot be."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from journal.errors import InvalidPayload
from journal.events import Unreadable
from journal.foreign import Stored, pekko_payloads
from journal.foreign.log import Envelopes
from journal.foreign.payloads import json_text, readable
from spark_projections.rebuilds.pickling import cloudpickle

for package in ("cbor2", "lz4.block", "google.protobuf"):
    pytest.importorskip(package)

GOLDEN = {
    row["name"]: row
    for line in (Path(__file__).parents[1] / "fixtures/recorded/pekko_payloads.jsonl")
    .read_text()
    .splitlines()
    for row in [json.loads(line)]
}
OPENED = {"owner": "Zoë 😀", "at": "2026-01-02T03:04:05.678901Z", "labels": ["a", "b"]}
LARGE = {"owner": "x" * 3000, "at": "1970-01-01T00:00:00Z", "labels": []}
PAID = {"amount": "12345678901234567890.50", "number": 7, "note": None, "more": {"by": "x"}, "key": "AQI="}
EXPECTED: dict[str, Any] = {
    "json": OPENED,
    "json version 3": OPENED,
    "cbor": PAID,
    "protobuf": {"n": 1.5},
    "string": 'plain "text"',
    "long": 123456789012,
    "int": -7,
    "boolean": True,
    "json gzip": LARGE,
    "json lz4": LARGE,
    "cbor gzip": PAID,
    "cbor lz4": PAID,
}


def stored(name: str) -> Stored:
    row = GOLDEN[name]
    return Stored("a|1", 7, "Opened", row["serializer_id"], row["manifest"], bytes.fromhex(row["payload"]))


@pytest.mark.parametrize("name", GOLDEN)
def test_payloads_of_pekko(name: str) -> None:
    from google.protobuf.struct_pb2 import Struct

    decode = pekko_payloads(protobuf={"com.google.protobuf.Struct": Struct})
    assert json.loads(decode(stored(name))) == EXPECTED[name]


@pytest.mark.parametrize("name", ["protobuf", "cbor lz4"])
def test_decoders_are_taken_to_other_processes(name: str) -> None:
    from google.protobuf.struct_pb2 import Struct

    own = {4711: lambda one: json.dumps(len(one.data))}
    decode = pekko_payloads(protobuf={"com.google.protobuf.Struct": Struct}, decoders=own)
    taken = pickle.loads(cloudpickle().dumps(Envelopes("theirs", decode)))
    assert json.loads(taken.decoder(stored(name))) == EXPECTED[name]
    assert taken.decoder(stored(name)._replace(serializer_id=4711, data=b"abc")) == "3"
    assert pickle.loads(pickle.dumps(Envelopes("theirs", json_text))) == Envelopes("theirs", json_text)


def test_a_json_column_comes_as_it_is() -> None:
    assert pekko_payloads()(stored("json")._replace(data='{"a": 1.50}', serializer_id=999)) == '{"a": 1.50}'


def test_what_is_not_known_or_broken_says_whose_it_is() -> None:
    decode = pekko_payloads()
    for change, said in (
        (
            {"serializer_id": 4711},
            "serializer 4711, manifest 'm', cannot be decoded: no decoder knows this serializer",
        ),
        ({"serializer_id": 2}, "no protobuf class is known for this manifest"),
        ({"serializer_id": 33, "data": b"\xff"}, "cannot be decoded"),
        ({"serializer_id": 31, "data": b"\xff\xfe\x00\x01"}, "it is not text: it begins with ff fe 00 01"),
        ({"serializer_id": 31, "data": gzip.compress(b"x" * 100)[:-20]}, "it is cut off"),
        ({"serializer_id": 31, "data": gzip.compress(b"x" * (17 << 20))}, "more than 16,777,216 bytes"),
        ({"serializer_id": 33, "data": b"\x87\xd9\x6d\xf6\x7f\xff\xff\xff"}, "2,147,483,647 bytes"),
    ):
        text = readable(decode, stored("json")._replace(manifest="m", **change), "the payload")
        assert isinstance(text, Unreadable)
        assert text.startswith("the payload of event 'Opened' of source 'a|1', seq_nr 7, serializer ")
        assert said in text


def test_a_decoder_of_ones_own_comes_first() -> None:
    decode = pekko_payloads(decoders={31: lambda given: f'"{given.manifest}"'})
    assert decode(stored("json")) == '"interop.Events$Opened"'


def test_json_may_be_packed() -> None:
    packed = Stored("a", 1, "x", None, None, gzip.compress(b'{"a": 1}'))
    assert json_text(packed) == '{"a": 1}'
    with pytest.raises(InvalidPayload):
        json_text(packed._replace(data=b"\x80"))
