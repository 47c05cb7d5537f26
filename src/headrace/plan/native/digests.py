"""Digests of texts: MD5, SHA and CRC-32, of their bytes in UTF-8."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from functools import partial

import pyarrow as pa

from headrace.plan.expression import Expression
from headrace.plan.native.rule import Datum, Rows, Rule, literal_int
from headrace.plan.native.vectors import over_array

_SHA2 = {0: "sha256", 224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}

Digest = Callable[[bytes], object]


def _hexadecimal(name: str) -> Digest:
    return lambda data: hashlib.new(name, data, usedforsecurity=False).hexdigest()


def _is_of_text(node: Expression) -> bool:
    source = node.args[0]
    return source.op == "Cast" and source.type.kind == "binary" and source.args[0].type.kind == "string"


def _computed(node: Expression, rows: Rows, digest: Digest) -> Datum:
    def of_each(texts: pa.Array) -> pa.Array:
        values = texts.cast(pa.large_binary()).to_pylist()
        return pa.array([None if data is None else digest(data) for data in values], node.type.arrow)

    return over_array(of_each, rows.value(node.args[0].args[0]))


def _rule(digest: Digest) -> Rule:
    return Rule(_is_of_text, partial(_computed, digest=digest), operands=lambda node: node.args[0].args)


def _sha2(node: Expression, rows: Rows) -> Datum:
    return _computed(node, rows, _hexadecimal(_SHA2[literal_int(node.args[1]) or 0]))


RULES = {
    "Md5": _rule(_hexadecimal("md5")),
    "Sha1": _rule(_hexadecimal("sha1")),
    "Sha2": Rule(
        lambda node: _is_of_text(node) and literal_int(node.args[1]) in _SHA2,
        _sha2,
        operands=lambda node: node.args[0].args,
    ),
    "Crc32": _rule(zlib.crc32),
}
