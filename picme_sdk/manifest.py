"""picme.json, the manifest of a bundle, as frozen dataclasses. docs/deploy/bundle.md is the normative description.

The key set is closed: an unknown, missing or repeated key, a value of another type or a path that leaves the bundle is a `BadBundle`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from picme_sdk.errors import BadBundle

FORMAT = 1
MANIFEST = "picme.json"
GRAPHS = ("encoder", "mixture", "decoder")
PRECISIONS = ("float32", "float16", "int8")
LARGEST_MANIFEST = 1 << 20  # bytes
LARGEST_FILE = 2 << 30
MOST_FILES = 256
# Lower case only, so that no two names clash on a case-blind file system; no part is "." or "..", nothing is absolute.
_NAME = re.compile(r"[a-z0-9_][a-z0-9_-]*(\.[a-z0-9_-]+)*(/[a-z0-9_][a-z0-9_-]*(\.[a-z0-9_-]+)*)*")
_HASH = re.compile(r"[0-9a-f]{64}")
_NO_TEXT = re.compile(r"[\0\ud800-\udfff]")  # NUL, and halves of characters: neither can be written or printed
_SEAL = re.compile(rb'"seal": "([0-9a-f]{64})"')

T = TypeVar("T")


@dataclass(frozen=True)
class Tensor:
    """One input or output of a graph. A string in `shape` is a size that may vary."""

    name: str
    dtype: str  # "uint8" or "float32", or "float16" between the graphs of that precision
    shape: tuple[int | str, ...]


@dataclass(frozen=True)
class File:
    """A file of the bundle that is neither graph nor engine, such as the report."""

    file: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class GraphFile:
    """One ONNX graph in one precision."""

    graph: str
    precision: str
    file: str
    sha256: str
    bytes: int
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True)
class EngineFile:
    """A serialized engine: native code for one builder version and target."""

    graph: str
    precision: str
    file: str
    sha256: str
    bytes: int
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    builder: str  # "tensorrt" or "tensorrt_rtx"
    version: str  # of the builder; an engine loads in this version only
    target: str  # "sm_89", several joined by "+", or "ampere+" for every card since Ampere
    source: str  # SHA-256 of the ONNX file it was built from
    profile: tuple[int, int, int]  # smallest, best and largest number of results of the decoder


@dataclass(frozen=True)
class Check:
    """One number that the exporter measured, and its limit."""

    graph: str
    compared: str  # such as "torch-float32" or "float32-float16"
    measure: str  # "max_abs", "psnr_db" or "finite"
    input: str  # which input was worst
    value: float
    limit: float


@dataclass(frozen=True)
class Card:
    """What people must know of a model before they use it."""

    training_data: str
    training: str
    metrics: str
    limits: str


@dataclass(frozen=True)
class Manifest:
    """picme.json."""

    format: int
    name: str
    licence: str
    image_size: int  # side of the square that the graphs work on, pixels
    primitives: int  # k
    latent: int  # d
    max_batch: int  # results in one decoder call
    graphs: tuple[GraphFile, ...]
    engines: tuple[EngineFile, ...]
    files: tuple[File, ...]
    made_by: str
    verified: tuple[Check, ...]
    card: Card
    seal: str  # SHA-256 of the manifest's bytes with this value as 64 zeros: finds damage, proves no origin

    @property
    def model_id(self) -> str:
        """Names the model in tokens: the hash of its three float32 graphs' hashes, the same for every precision and engine."""
        return hashlib.sha256("".join(self.graph(name).sha256 for name in GRAPHS).encode()).hexdigest()

    def graph(self, name: str, precision: str = "float32") -> GraphFile:
        return next(g for g in self.graphs if (g.graph, g.precision) == (name, precision))

    def precisions(self) -> tuple[str, ...]:
        """Precisions of encoder and decoder; the mixture is always float32."""
        have = {(g.graph, g.precision) for g in self.graphs}
        return tuple(p for p in PRECISIONS if ("encoder", p) in have and ("decoder", p) in have)

    def listed(self) -> tuple[GraphFile | EngineFile | File, ...]:
        return (*self.graphs, *self.engines, *self.files)


def _bad(given: str, expected: str) -> BadBundle:
    return BadBundle(f"{MANIFEST}: {given}", expected, "export the bundle again")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key twice")
    return table


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


class _Reader:
    """Takes a JSON object apart; every key must be asked for exactly once."""

    def __init__(self, table: Any, where: str, kind: type) -> None:
        self.where = where
        expected = {field.name for field in fields(kind)}
        if not isinstance(table, dict):
            raise _bad(f"{where} is a {type(table).__name__}", "an object")
        if set(table) != expected:
            unknown, missing = sorted(set(table) - expected), sorted(expected - set(table))
            raise _bad(f"{where} has unknown keys {unknown[:3]}, lacks {missing[:3]}", f"the keys {sorted(expected)}")
        self.table: dict[str, Any] = table

    def text(self, key: str, pattern: re.Pattern[str] | None = None, choices: tuple[str, ...] | None = None) -> str:
        value = self.table[key]
        if not isinstance(value, str) or len(value) > 4000 or _NO_TEXT.search(value):
            raise _bad(f"{self.where}.{key} is {str(value)[:60]!r}", "a text of at most 4,000 characters")
        if pattern is not None and not pattern.fullmatch(value):
            raise _bad(f"{self.where}.{key} is {value[:60]!r}", f"a value of the form {pattern.pattern}")
        if choices is not None and value not in choices:
            raise _bad(f"{self.where}.{key} is {value[:60]!r}", f"one of {choices}")
        return value

    def integer(self, key: str, low: int, high: int) -> int:
        value = self.table[key]
        if type(value) is not int or not low <= value <= high:
            raise _bad(f"{self.where}.{key} is {str(value)[:60]!r}", f"an integer from {low} to {high}")
        return value

    def number(self, key: str) -> float:
        value = self.table[key]
        if type(value) not in (int, float) or abs(value) > 1e30:
            raise _bad(f"{self.where}.{key} is {str(value)[:60]!r}", "a finite number")
        return float(value)

    def items(self, key: str, read: Callable[[Any, str], T]) -> tuple[T, ...]:
        value = self.table[key]
        if not isinstance(value, list) or len(value) > MOST_FILES:
            raise _bad(f"{self.where}.{key} is {str(value)[:60]!r}", f"a list of at most {MOST_FILES}")
        return tuple(read(item, f"{self.where}.{key}[{i}]") for i, item in enumerate(value))


def _tensor(table: Any, where: str) -> Tensor:
    r = _Reader(table, where, Tensor)

    def size(value: Any, at: str) -> int | str:
        if (type(value) is int and 0 < value < 1 << 20) or value == "n":
            return value  # type: ignore[no-any-return]
        raise _bad(f"{at} is {str(value)[:20]!r}", 'a positive size or "n"')

    name = re.compile(r"[a-z][a-z0-9_]{0,40}")
    return Tensor(
        r.text("name", name), r.text("dtype", choices=("uint8", "float32", "float16")), r.items("shape", size)
    )


def _file_fields(r: _Reader) -> dict[str, Any]:
    file = r.text("file", _NAME)
    if len(file) > 200 or file == MANIFEST:
        raise _bad(f"{r.where}.file is {file[:60]!r}", "another name of at most 200 characters")
    return {"file": file, "sha256": r.text("sha256", _HASH), "bytes": r.integer("bytes", 1, LARGEST_FILE)}


def _graph_fields(r: _Reader) -> dict[str, Any]:
    return {
        "graph": r.text("graph", choices=GRAPHS),
        "precision": r.text("precision", choices=PRECISIONS),
        **_file_fields(r),
        "inputs": r.items("inputs", _tensor),
        "outputs": r.items("outputs", _tensor),
    }


def _graph(table: Any, where: str) -> GraphFile:
    return GraphFile(**_graph_fields(_Reader(table, where, GraphFile)))


def _engine(table: Any, where: str) -> EngineFile:
    r = _Reader(table, where, EngineFile)
    profile = r.items("profile", lambda v, at: v)
    if len(profile) != 3 or any(type(v) is not int for v in profile) or not 0 < profile[0] <= profile[1] <= profile[2]:
        raise _bad(f"{where}.profile is {profile}", "three rising positive integers")
    version = re.compile(r"[0-9]+(\.[0-9]+){1,4}")
    target = re.compile(r"ampere\+|sm_[0-9]{2,3}(\+sm_[0-9]{2,3})*")
    return EngineFile(
        **_graph_fields(r),
        builder=r.text("builder", choices=("tensorrt", "tensorrt_rtx")),
        version=r.text("version", version),
        target=r.text("target", target),
        source=r.text("source", _HASH),
        profile=(profile[0], profile[1], profile[2]),
    )


def _plain_file(table: Any, where: str) -> File:
    return File(**_file_fields(_Reader(table, where, File)))


def _check(table: Any, where: str) -> Check:
    r = _Reader(table, where, Check)
    return Check(r.text("graph", choices=GRAPHS), r.text("compared"), r.text("measure"), r.text("input"), r.number("value"), r.number("limit"))  # fmt: skip


def _card(table: Any, where: str) -> Card:
    r = _Reader(table, where, Card)
    return Card(r.text("training_data"), r.text("training"), r.text("metrics"), r.text("limits"))


def seal_of(data: bytes) -> str:
    """The seal that a manifest of these bytes must carry."""
    if len(_SEAL.findall(data)) != 1:
        raise _bad("no seal or several", 'one entry "seal": "<64 hexadecimal digits>"')
    return hashlib.sha256(_SEAL.sub(b'"seal": "' + b"0" * 64 + b'"', data)).hexdigest()


def parse_manifest(data: bytes) -> Manifest:
    """Read picme.json. Anything but exactly the documented form is a `BadBundle`."""
    if len(data) > LARGEST_MANIFEST:
        raise _bad(f"{len(data)} bytes", f"at most {LARGEST_MANIFEST}")
    try:
        table = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise _bad(
            f"not JSON ({type(error).__name__}: {str(error)[:80]})", "plain JSON without repeated keys"
        ) from error
    if isinstance(table, dict) and table.get("format") != FORMAT:
        raise _bad(f"format {str(table.get('format'))[:20]}", f"format {FORMAT}; update picme-sdk or export again")
    r = _Reader(table, "manifest", Manifest)
    manifest = Manifest(
        format=r.integer("format", FORMAT, FORMAT),
        name=r.text("name", re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}")),
        licence=r.text("licence"),
        image_size=r.integer("image_size", 8, 4096),
        primitives=r.integer("primitives", 1, 1024),
        latent=r.integer("latent", 1, 65536),
        max_batch=r.integer("max_batch", 1, 1024),
        graphs=r.items("graphs", _graph),
        engines=r.items("engines", _engine),
        files=r.items("files", _plain_file),
        made_by=r.text("made_by"),
        verified=r.items("verified", _check),
        card=_card(r.table["card"], "manifest.card"),
        seal=r.text("seal", _HASH),
    )
    if manifest.seal != seal_of(data):
        raise _bad("the seal does not match", "an unchanged manifest")
    names = [entry.file for entry in manifest.listed()]
    if len(set(names)) != len(names):
        raise _bad("a file is listed twice", "every file once")
    graphs = [(g.graph, g.precision) for g in manifest.graphs]
    if len(set(graphs)) != len(graphs) or any((g, "float32") not in graphs for g in GRAPHS):
        raise _bad(f"graphs {graphs}"[:120], "each graph once a precision, and all three in float32")
    return manifest


def manifest_bytes(manifest: Manifest) -> bytes:
    """picme.json as it is written, with its seal."""
    table = asdict(manifest) | {"seal": "0" * 64}
    data = (json.dumps(table, indent=1, allow_nan=False) + "\n").encode()
    return _SEAL.sub(b'"seal": "' + seal_of(data).encode() + b'"', data)
