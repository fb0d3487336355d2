"""Bugs of reading what other systems have stored."""

from __future__ import annotations

from tests.mutants.layers import Pytest
from tests.mutants.seeding import in_python

_TESTS = "tests/unit/test_foreign_payloads.py"
_REFUSED = Pytest(f"{_TESTS}::test_what_is_not_known_or_broken_says_whose_it_is")
_PEKKO = "journal/foreign/pekko_payloads.py"

in_python(
    "gzip-that-is-cut-off-is-read",
    "a payload that was cut off is read as far as it goes",
    "journal/foreign/payloads.py: unpacked",
    "len(whole) > MAX_PAYLOAD_BYTES or not unpacking.eof",
    "len(whole) > MAX_PAYLOAD_BYTES",
    _REFUSED,
)
in_python(
    "gzip-has-no-limit",
    "a few bytes are unpacked to as many as they say, and fill the memory",
    "journal/foreign/payloads.py: unpacked",
    "unpacking.decompress(data, MAX_PAYLOAD_BYTES + 1)\n    if len(whole) > MAX_PAYLOAD_BYTES or not unpacking.eof",
    "unpacking.decompress(data)\n    if not unpacking.eof",
    _REFUSED,
)
in_python(
    "lz4-has-no-limit",
    "memory is taken for as many bytes as a payload says that it has",
    f"{_PEKKO}: _unpacked",
    "size > MAX_PAYLOAD_BYTES",
    "size < 0",
    _REFUSED,
)
in_python(
    "longs-are-of-the-other-order",
    "a number of a foreign journal is read in the other order of bytes",
    f"{_PEKKO}: _number",
    "struct.Struct(form)",
    "struct.Struct(form.replace('<', '>'))",
    Pytest(f"{_TESTS}::test_payloads_of_pekko"),
)
in_python(
    "bytes-of-cbor-are-text",
    "bytes in CBOR are written as if they were text",
    f"{_PEKKO}: _cbor",
    'bytes_mode="base64"',
    'bytes_mode="utf8"',
    Pytest(f"{_TESTS}::test_payloads_of_pekko"),
)
in_python(
    "own-decoders-come-last",
    "a decoder that somebody has given is not asked where there is one for that serializer",
    f"{_PEKKO}: _PekkoPayloads.__init__",
    "            **own,\n",
    "            **{one: own[one] for one in own if one > 35},\n",
    Pytest(f"{_TESTS}::test_a_decoder_of_ones_own_comes_first"),
)
