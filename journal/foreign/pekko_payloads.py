"""Payloads as Akka's and Pekko's own serializers store them: Jackson's JSON and CBOR, protobuf, primitive values."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from pydantic_core import to_json

from journal.errors import InvalidPayload, ProjectionsError
from journal.foreign.cbor import check_cbor
from journal.foreign.payloads import Decoder, Stored, text_of, unpacked
from journal.payload import MAX_PAYLOAD_BYTES

_PROTOBUF, _JACKSON_JSON, _JACKSON_CBOR_264, _JACKSON_CBOR = 2, 31, 32, 33
_LONG, _INT, _STRING, _BOOLEAN = 18, 19, 20, 35
_LZ4 = struct.Struct(">II")
_LZ4_MAGIC = 0x87D96DF6
_SELF_DESCRIBED = b"\xd9\xd9\xf7"
"""What CBOR may begin with, to say that it is CBOR."""


def pekko_payloads(
    protobuf: Mapping[str, Any] | None = None, decoders: Mapping[int, Decoder] | None = None
) -> Decoder:
    """
    The decoder of payloads and metadata of a journal of Akka or Pekko.

    Jackson's JSON (serializers 31 and 32) and CBOR (33), compressed by gzip or LZ4 or not; protobuf messages (2);
    strings, numbers and booleans (18, 19, 20, 35). JSON columns come as they are. CBOR needs the package cbor2, LZ4 the
    package lz4, protobuf the package protobuf: ``slice-projections[pekko]`` has them.

    Args:
        protobuf: Message classes by manifest, the Java class.
        decoders: Decoders of other serializers by id, which come before those here.
    """
    return _PekkoPayloads(dict(protobuf or {}), dict(decoders or {}))


class _PekkoPayloads:
    def __init__(self, protobuf: Mapping[str, Any], own: Mapping[int, Decoder]) -> None:
        self._made_of = protobuf, own
        self._own = own
        self._by_id: dict[int, Decoder] = {
            _JACKSON_JSON: _json,
            _JACKSON_CBOR_264: _json,
            _JACKSON_CBOR: _cbor,
            _PROTOBUF: _protobuf(protobuf),
            _LONG: _number("<q"),
            _INT: _number("<i"),
            _STRING: lambda stored: to_json(text_of(_bytes(stored))).decode(),
            _BOOLEAN: lambda stored: "true" if _bytes(stored) == b"\1" else "false",
            **own,
        }

    def __call__(self, stored: Stored) -> str:
        if isinstance(stored.data, str) and stored.serializer_id not in self._own:
            return stored.data
        found = None if stored.serializer_id is None else self._by_id.get(stored.serializer_id)
        if found is None:
            raise InvalidPayload("no decoder knows this serializer: pass one in decoders, by its id")
        return found(stored)

    def __reduce__(self) -> tuple[Any, ...]:
        return _PekkoPayloads, self._made_of  # made again in the other process


def _bytes(stored: Stored) -> bytes:
    data = stored.data
    return data if type(data) is bytes else data.encode() if isinstance(data, str) else bytes(data)


def _json(stored: Stored) -> str:
    data = _bytes(stored)
    return text_of(data if data.startswith(b"{") else _unpacked(data))


def _cbor(stored: Stored) -> str:
    check_cbor(data := _unpacked(_bytes(stored)).removeprefix(_SELF_DESCRIBED))
    value = _needed("cbor2").loads(data)
    return to_json(value, bytes_mode="base64").decode()


def _protobuf(classes: Mapping[str, Any]) -> Decoder:
    def decode(stored: Stored) -> str:
        message = classes.get(stored.manifest or "")
        if message is None:
            raise InvalidPayload(
                "no protobuf class is known for this manifest: pass one in protobuf, by the manifest"
            )
        text: str = _needed("google.protobuf.json_format").MessageToJson(
            message.FromString(_bytes(stored)), indent=None
        )
        return text

    return decode


def _number(form: str) -> Callable[[Stored], str]:
    layout = struct.Struct(form)
    return lambda stored: str(layout.unpack(_bytes(stored))[0])


def _unpacked(data: bytes) -> bytes:
    if len(data) < _LZ4.size or _LZ4.unpack_from(data)[0] != _LZ4_MAGIC:
        return unpacked(data)
    size = _LZ4.unpack_from(data)[1]
    if size > MAX_PAYLOAD_BYTES:
        raise InvalidPayload(
            f"it says that it has {size:,} bytes when it is unpacked; up to {MAX_PAYLOAD_BYTES:,} are read"
        )
    block: bytes = _needed("lz4.block").decompress(data[_LZ4.size :], uncompressed_size=size)
    return block


def _needed(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ProjectionsError(
            f"it needs the package {package}, which is not installed: pip install 'slice-projections[pekko]'"
        ) from error
