"""picme.json, the manifest of a bundle, as frozen dataclasses. docs/deploy/bundle.md is the normative description.

Format 2 is written; formats 1 and 2 are read. The key set of each is closed: an unknown, missing or repeated key, a value of another type
or a path that leaves the bundle is a `BadBundle`.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, replace
from typing import Any

from picme_sdk.bundle.json_reader import Reader, bad, load, number
from picme_sdk.contract import (
    BUILDERS,
    BUNDLE_FORMAT,
    BUNDLE_KEYS,
    GRAPHS,
    MANIFEST,
    MAX_AMBIGUITY_POWER,
    MAX_BATCH,
    MAX_FILE_BYTES,
    MAX_IMAGE_SIZE,
    MAX_KNOWS_LENGTH,
    MAX_LATENT,
    MAX_MANIFEST_BYTES,
    MAX_NUMBER,
    MAX_PRIMITIVES,
    MIN_IMAGE_SIZE,
    PRECISIONS,
    STORAGES,
)

# Lower case only, so that no two names clash on a case-blind file system; no part is "." or "..", nothing is absolute.
_NAME = re.compile(r"[a-z0-9_][a-z0-9_-]*(\.[a-z0-9_-]+)*(/[a-z0-9_][a-z0-9_-]*(\.[a-z0-9_-]+)*)*")
_HASH = re.compile(r"[0-9a-f]{64}")
_SEAL = re.compile(rb'"seal": "([0-9a-f]{64})"')
_LINE = re.compile(r"[^\x00-\x1f\x7f]*")
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}")
_TENSOR = re.compile(r"[a-z][a-z0-9_]{0,40}")
_VERSION = re.compile(r"[0-9]+(\.[0-9]+){1,4}([.+-]?[a-z][a-z0-9.]{0,30})?")  # such as 10.13.3.9.post1
_TARGET = re.compile(r"ampere\+|sm_[0-9]{2,3}(\+sm_[0-9]{2,3})*")


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
    precision: str  # of its arithmetic
    storage: str  # of its floating-point weights; "float16" in a float32 graph means that each is followed by a Cast
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
    version: str  # of the builder, with its suffix; an engine loads in this version only
    target: str  # "sm_89", several joined by "+", or "ampere+" for every card since Ampere
    source: str  # SHA-256 of the ONNX file it was built from
    profiles: tuple[tuple[int, int, int], ...]  # smallest, best and largest number of results of the decoder


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
class Measurement:
    """How long a graph took on one device. Empty texts are unknown."""

    device: str  # such as "NVIDIA GeForce RTX 4090"
    driver: str
    clocks: str  # such as "locked at 2520 MHz"
    backend: str  # such as "tensorrt 10.13.3.9.post1"
    graph: str
    precision: str
    results: int  # of one call
    rounds: int  # that the percentiles are of
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True)
class Ambiguity:
    """Which primitives look alike, calibrated against decoded pictures: the similarity of two is exp(-(d / scale) ** power), where d is
    the square root of the sum over dimensions of weight * (difference of means) ** 2."""

    scale: float
    power: float
    weights: tuple[float, ...] | None  # one for each dimension; None = all are 1


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

    format: int  # as it was read; format 2 is written
    name: str
    knows: str  # what the model is for, in one line for people
    licence: str
    model_id: str  # names the model in tokens, the same for every precision and engine
    image_size: int  # side of the square that the graphs work on, pixels
    primitives: int  # k
    latent: int  # d
    max_batch: int  # results in one decoder call
    ambiguity: Ambiguity | None  # None: not calibrated
    graphs: tuple[GraphFile, ...]
    engines: tuple[EngineFile, ...]
    files: tuple[File, ...]
    made_by: str
    verified: tuple[Check, ...]
    measured: tuple[Measurement, ...]
    card: Card
    seal: str  # SHA-256 of the manifest's bytes with this value as 64 zeros: finds damage, proves no origin

    def graph(self, name: str, precision: str = "float32") -> GraphFile:
        """A graph in a precision, or in float32 where it has no such twin: precision is per graph."""
        twins = {g.precision: g for g in self.graphs if g.graph == name}
        return twins.get(precision, twins["float32"])

    def precisions(self) -> tuple[str, ...]:
        """Precisions that can be asked for: at least one graph has it, and the skips fit between encoder and decoder."""
        have = {g.precision for g in self.graphs}
        return tuple(p for p in PRECISIONS if p == "float32" or (p in have and self._skips_fit(p)))

    def _skips_fit(self, precision: str) -> bool:
        made = {t.name: t for t in self.graph("encoder", precision).outputs}
        return all(made.get(t.name) == t for t in self.graph("decoder", precision).inputs if t.name != "z")

    def listed(self) -> tuple[GraphFile | EngineFile | File, ...]:
        return (*self.graphs, *self.engines, *self.files)


def hash_of_graphs(graphs: tuple[GraphFile, ...]) -> str:
    """The model id of format 1, and of a model that is exported for the first time: the hash of its three float32 graphs' hashes."""
    plain = {g.graph: g.sha256 for g in graphs if g.precision == "float32"}
    return hashlib.sha256("".join(plain[name] for name in GRAPHS).encode()).hexdigest()


def _tensor(table: Any, where: str, form: int) -> Tensor:
    r = Reader(table, where, "tensor", form)

    def size(value: Any, at: str, _: int) -> int | str:
        if (type(value) is int and 0 < value < 1 << 20) or value == "n":
            return value  # type: ignore[no-any-return]
        raise bad(f"{at} is {str(value)[:20]!r}", 'a positive size or "n"')

    return Tensor(
        r.text("name", _TENSOR), r.text("dtype", choices=("uint8", "float32", "float16")), r.items("shape", size)
    )


def _file_fields(r: Reader) -> dict[str, Any]:
    file = r.text("file", _NAME)
    if len(file) > 200 or file == MANIFEST:
        raise bad(f"{r.where}.file is {file[:60]!r}", "another name of at most 200 characters")
    return {"file": file, "sha256": r.text("sha256", _HASH), "bytes": r.integer("bytes", 1, MAX_FILE_BYTES)}


def _graph_fields(r: Reader) -> dict[str, Any]:
    return {
        "graph": r.text("graph", choices=GRAPHS),
        "precision": r.text("precision", choices=PRECISIONS),
        **_file_fields(r),
        "inputs": r.items("inputs", _tensor),
        "outputs": r.items("outputs", _tensor),
    }


def _graph(table: Any, where: str, form: int) -> GraphFile:
    r = Reader(table, where, "graph", form)
    storage = "float32" if form == 1 else r.text("storage", choices=STORAGES)
    made = GraphFile(**_graph_fields(r), storage=storage)
    # A format 1 twin stores its weights in its own precision.
    return replace(made, storage="float16") if form == 1 and made.precision == "float16" else made


def _engine(table: Any, where: str, form: int) -> EngineFile:
    r = Reader(table, where, "engine", form)
    profiles = (_profile(r.table["profile"], f"{where}.profile", form),) if form == 1 else r.items("profiles", _profile)
    if not profiles:
        raise bad(f"{where}.profiles is empty", "at least one")
    return EngineFile(
        **_graph_fields(r),
        builder=r.text("builder", choices=BUILDERS),
        version=r.text("version", _VERSION),
        target=r.text("target", _TARGET),
        source=r.text("source", _HASH),
        profiles=profiles,
    )


def _profile(value: Any, where: str, form: int) -> tuple[int, int, int]:
    if isinstance(value, list) and len(value) == 3 and all(type(v) is int for v in value):
        low, best, high = value
        if 0 < low <= best <= high:
            return low, best, high
    raise bad(f"{where} is {str(value)[:60]}", "three rising positive integers")


def _plain_file(table: Any, where: str, form: int) -> File:
    return File(**_file_fields(Reader(table, where, "file", form)))


def _check(table: Any, where: str, form: int) -> Check:
    r = Reader(table, where, "check", form)
    return Check(r.text("graph", choices=GRAPHS), r.text("compared"), r.text("measure"), r.text("input"), r.number("value"), r.number("limit"))  # fmt: skip


def _measurement(table: Any, where: str, form: int) -> Measurement:
    r = Reader(table, where, "measurement", form)
    return Measurement(
        **{key: r.text(key) for key in ("device", "driver", "clocks", "backend")},
        graph=r.text("graph", choices=GRAPHS),
        precision=r.text("precision", choices=PRECISIONS),
        results=r.integer("results", 1, MAX_BATCH),
        rounds=r.integer("rounds", 1, 1 << 31),
        p50_ms=r.number("p50_ms", 0),
        p99_ms=r.number("p99_ms", 0),
    )


def _ambiguity(table: Any, where: str, form: int, latent: int) -> Ambiguity | None:
    if table is None:
        return None
    r = Reader(table, where, "ambiguity", form)
    weights = None
    if r.table["weights"] is not None:
        weights = r.items("weights", lambda value, at, _: number(value, at, 0, MAX_NUMBER), MAX_LATENT)
        if len(weights) != latent:
            raise bad(f"{where}.weights has {len(weights)} numbers", f"one for each of the {latent} dimensions")
    scale, power = r.number("scale", 0), r.number("power", 0, MAX_AMBIGUITY_POWER)
    if scale == 0 or power == 0:
        raise bad(f"{where} has scale {scale:g} and power {power:g}", "positive numbers")
    return Ambiguity(scale, power, weights)


def _card(table: Any, where: str, form: int) -> Card:
    r = Reader(table, where, "card", form)
    return Card(r.text("training_data"), r.text("training"), r.text("metrics"), r.text("limits"))


def seal_of(data: bytes) -> str:
    """The seal that a manifest of these bytes must carry."""
    if len(_SEAL.findall(data)) != 1:
        raise bad("no seal or several", 'one entry "seal": "<64 hexadecimal digits>"')
    return hashlib.sha256(_SEAL.sub(b'"seal": "' + b"0" * 64 + b'"', data)).hexdigest()


def parse_manifest(data: bytes) -> Manifest:
    """Read picme.json. Anything but exactly the documented form is a `BadBundle`."""
    if len(data) > MAX_MANIFEST_BYTES:
        raise bad(f"{len(data)} bytes", f"at most {MAX_MANIFEST_BYTES}")
    table = load(data)
    form = table.get("format") if isinstance(table, dict) else BUNDLE_FORMAT
    if type(form) is not int or form not in BUNDLE_KEYS:
        known = " or ".join(map(str, BUNDLE_KEYS))
        raise bad(f"format {str(form)[:20]}", f"format {known}; update picme-sdk or export again")
    r = Reader(table, "manifest", "manifest", form)
    graphs, latent = r.items("graphs", _graph), r.integer("latent", 1, MAX_LATENT)
    listed = [(g.graph, g.precision) for g in graphs]
    if len(set(listed)) != len(listed) or any((g, "float32") not in listed for g in GRAPHS):
        raise bad(f"graphs {listed}"[:120], "each graph once per precision, and all three in float32")
    manifest = Manifest(
        format=form,
        name=r.text("name", _MODEL),
        knows="" if form == 1 else r.text("knows", _LINE, length=MAX_KNOWS_LENGTH),
        licence=r.text("licence"),
        model_id=hash_of_graphs(graphs) if form == 1 else r.text("model_id", _HASH),
        image_size=r.integer("image_size", MIN_IMAGE_SIZE, MAX_IMAGE_SIZE),
        primitives=r.integer("primitives", 1, MAX_PRIMITIVES),
        latent=latent,
        max_batch=r.integer("max_batch", 1, MAX_BATCH),
        ambiguity=None if form == 1 else _ambiguity(r.table["ambiguity"], "manifest.ambiguity", form, latent),
        graphs=graphs,
        engines=r.items("engines", _engine),
        files=r.items("files", _plain_file),
        made_by=r.text("made_by"),
        verified=r.items("verified", _check),
        measured=() if form == 1 else r.items("measured", _measurement),
        card=_card(r.table["card"], "manifest.card", form),
        seal=r.text("seal", _HASH),
    )
    if manifest.seal != seal_of(data):
        raise bad("the seal does not match", "an unchanged manifest")
    names = [entry.file for entry in manifest.listed()]
    if len(set(names)) != len(names):
        raise bad("a file is listed twice", "every file once")
    return manifest


def manifest_bytes(manifest: Manifest) -> bytes:
    """picme.json in format 2, with its seal."""
    table = asdict(manifest) | {"format": BUNDLE_FORMAT, "seal": "0" * 64}
    data = (json.dumps(table, indent=1, allow_nan=False) + "\n").encode()
    return _SEAL.sub(b'"seal": "' + seal_of(data).encode() + b'"', data)
