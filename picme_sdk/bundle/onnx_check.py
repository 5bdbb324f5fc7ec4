"""What must be known of an ONNX file before a runtime may load it, read without the onnx package.

Refused: tensors whose data lie in another file (a path traversal each time somebody forgot to check), operators outside the
standard sets, and local functions. The walk follows lengths and never copies tensor data.
"""

from __future__ import annotations

from collections.abc import Iterator

from picme_sdk.errors import BadBundle

# Field numbers of onnx.proto.
MODEL_GRAPH, MODEL_OPSET, MODEL_FUNCTIONS = 7, 8, 25
OPSET_DOMAIN = 1
GRAPH_NODE, GRAPH_INITIALIZER, GRAPH_SPARSE = 1, 5, 15
NODE_ATTRIBUTE, NODE_DOMAIN = 5, 7
ATTRIBUTE_TENSOR, ATTRIBUTE_GRAPH, ATTRIBUTE_TENSORS, ATTRIBUTE_GRAPHS = 5, 6, 10, 11
ATTRIBUTE_SPARSE, ATTRIBUTE_SPARSES = 22, 23
SPARSE_VALUES, SPARSE_INDICES = 1, 2
TENSOR_EXTERNAL, TENSOR_LOCATION = 13, 14

DOMAINS = (b"", b"ai.onnx")
MAX_DEPTH = 16  # nested graphs


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("truncated")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(data: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """(field number, value) of a protobuf message; length-delimited values are views."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        size, at = _varint(data, at) if kind == 2 else ({1: 8, 5: 4}.get(kind, -1), at)
        if size < 0 or at + size > len(data):
            raise ValueError("truncated")
        yield key >> 3, data[at : at + size]
        at += size


def _messages(data: memoryview, *wanted: int) -> Iterator[tuple[int, memoryview]]:
    for field, value in _fields(data):
        if field in wanted and isinstance(value, memoryview):
            yield field, value


def _check_tensor(tensor: memoryview, name: str) -> None:
    for field, value in _fields(tensor):
        if field == TENSOR_EXTERNAL or (field == TENSOR_LOCATION and value != 0):
            raise BadBundle(f"{name}: a tensor is in another file", "all data inside the ONNX file", "export again")


def _check_sparse(sparse: memoryview, name: str) -> None:
    for _, tensor in _messages(sparse, SPARSE_VALUES, SPARSE_INDICES):
        _check_tensor(tensor, name)


def _check_domain(domain: memoryview, name: str) -> None:
    if bytes(domain) not in DOMAINS:
        given = bytes(domain[:40]).decode("utf-8", "replace")
        raise BadBundle(f"{name}: operators of the domain {given!r}", "standard ONNX operators only", "export again")


def _check_graph(graph: memoryview, name: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise BadBundle(f"{name}: graphs nested {depth} deep", f"at most {MAX_DEPTH}", "export again")
    for field, value in _messages(graph, GRAPH_NODE, GRAPH_INITIALIZER, GRAPH_SPARSE):
        if field == GRAPH_INITIALIZER:
            _check_tensor(value, name)
        elif field == GRAPH_SPARSE:
            _check_sparse(value, name)
        else:
            for part, content in _messages(value, NODE_ATTRIBUTE, NODE_DOMAIN):
                if part == NODE_DOMAIN:
                    _check_domain(content, name)
                else:
                    _check_attribute(content, name, depth)


def _check_attribute(attribute: memoryview, name: str, depth: int) -> None:
    for field, value in _fields(attribute):
        if not isinstance(value, memoryview):
            continue
        if field in (ATTRIBUTE_TENSOR, ATTRIBUTE_TENSORS):
            _check_tensor(value, name)
        elif field in (ATTRIBUTE_SPARSE, ATTRIBUTE_SPARSES):
            _check_sparse(value, name)
        elif field in (ATTRIBUTE_GRAPH, ATTRIBUTE_GRAPHS):
            _check_graph(value, name, depth + 1)


def check_self_contained(model: bytes, name: str) -> None:
    """Raise `BadBundle` unless the ONNX model needs nothing but itself and the standard operators."""
    try:
        graphs = 0
        for field, value in _messages(memoryview(model), MODEL_GRAPH, MODEL_OPSET, MODEL_FUNCTIONS):
            if field == MODEL_FUNCTIONS:
                raise BadBundle(f"{name}: local functions", "plain nodes", "export again")
            if field == MODEL_OPSET:
                for _, domain in _messages(value, OPSET_DOMAIN):
                    _check_domain(domain, name)
            else:
                graphs += 1
                _check_graph(value, name, 0)
    except ValueError as error:
        raise BadBundle(f"{name}: not an ONNX file ({error})", "an ONNX model", "export again") from error
    if graphs != 1:
        raise BadBundle(f"{name}: {graphs} graphs", "an ONNX model with one graph", "export again")
