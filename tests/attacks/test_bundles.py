"""Attacks 15 to 18: manifests, files, graphs, engines. Allowed: the bundle, or `BadBundle` before anything of it runs."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from picme_sdk import Completer, PicmeError
from picme_sdk.backends.tensorrt import choose_engines, rebuild
from picme_sdk.bundle.bundle import Bundle
from picme_sdk.bundle.manifest import manifest_bytes, parse_manifest, seal_of
from picme_sdk.errors import BackendUnavailable, BadBundle
from tests.attacks.conftest import MASK, PHOTO


@pytest.fixture
def folder(bundle_folder: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(bundle_folder, tmp_path / "bundle"))


def seal(data: bytes) -> bytes:
    return data.replace(b'"seal": "' + b"0" * 64, b'"seal": "' + seal_of(data).encode())


def rewrite(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest and seal it again, as an attacker would."""
    table = json.loads((folder / "picme.json").read_text())
    change(table)
    (folder / "picme.json").write_bytes(seal((json.dumps(table | {"seal": "0" * 64}, indent=1) + "\n").encode()))


def replace_graph(folder: Path, name: str, model: bytes) -> None:
    """Put other bytes in the place of a graph, with a manifest that vouches for them."""
    (folder / f"{name}.onnx").write_bytes(model)
    entry = {"sha256": hashlib.sha256(model).hexdigest(), "bytes": len(model)}
    rewrite(folder, lambda m: next(g for g in m["graphs"] if g["file"] == f"{name}.onnx").update(entry))


def test_15_seeded_damage_of_the_manifest(bundle_folder: Path) -> None:
    """Values are swapped for odd ones at random places of the JSON, sealed again: the same manifest, or `BadBundle`."""
    good = (bundle_folder / "picme.json").read_bytes()
    random = np.random.default_rng(15)
    odd: list[Any] = [None, True, -1, 0, 10**18, 1e300, "", "../x", "x" * 5000, "\ud800", "a\0b", [], {}, [[]], "é"]

    def damage(value: Any, budget: list[int]) -> Any:
        budget[0] -= 1
        if budget[0] == 0:
            return odd[random.integers(len(odd))]
        if isinstance(value, dict):
            return {key: damage(item, budget) for key, item in value.items()}
        return [damage(item, budget) for item in value] if isinstance(value, list) else value

    refused = 0
    for _ in range(300):
        table = damage(json.loads(good), [int(random.integers(1, 150))])
        data = json.dumps(table if not isinstance(table, dict) else table | {"seal": "0" * 64}, indent=1).encode()
        try:
            parse_manifest(seal(data) if isinstance(table, dict) else data)
        except BadBundle:
            refused += 1
    assert refused > 200


@pytest.mark.parametrize(
    "data",
    [b"[" * 10**6, b'{"a":' * 10**6, b"1" * 10**6, b'"' + b"x" * 900_000 + b'"', b'{"format": 1e999}', b'{"format": -Infinity}', b"\xef\xbb\xbf{}", b"{}\0", b'{"a": 1, "a": 2}', b" " * (50 << 20)],
    ids=["deep list", "deep object", "a long number", "a long text", "overflow", "infinity", "bom", "nul", "twice", "50 MB"],
)  # fmt: skip
def test_15_text_that_is_no_manifest(folder: Path, data: bytes) -> None:
    (folder / "picme.json").write_bytes(data)
    with pytest.raises(BadBundle) as caught:
        Bundle(folder)
    assert len(str(caught.value)) < 1000


NAMES = ["../x", "..", "/etc/passwd", "C:\\x", "c:/x", "a\\..\\b", "x#/../../y", "%2e%2e/x", "a\0b", "a/./b", "A", "a" * 201, "con:", "-", "", "é", "a\n"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_15_paths_out_of_the_bundle(folder: Path, name: str) -> None:
    for kind in ("graphs", "engines", "files"):
        rewrite(folder, lambda m, kind=kind: m[kind][0].update(file=name))  # type: ignore[misc]
        with pytest.raises(BadBundle):
            Bundle(folder)


def test_15_links_pipes_and_folders(folder: Path, tmp_path: Path) -> None:
    """Nothing outside is read, nothing hangs. A hard link is a plain file: its bytes decide."""
    outside, inside = tmp_path / "outside", folder / "decoder.onnx"
    shutil.move(inside, outside)
    for make in (
        lambda: inside.symlink_to(outside),
        lambda: inside.symlink_to(inside),
        lambda: os.mkfifo(inside),
        lambda: inside.mkdir(),
    ):
        make()
        with pytest.raises(BadBundle):
            Bundle(folder).verify()
        with pytest.raises(BadBundle):
            Completer(folder, "cpu")
        inside.rmdir() if inside.is_dir() and not inside.is_symlink() else inside.unlink()
    os.link(outside, inside)
    Bundle(folder).verify()
    shutil.rmtree(folder / "engines")
    (folder / "engines").symlink_to(tmp_path)
    with pytest.raises(BadBundle):
        Bundle(folder).verify()


@pytest.mark.parametrize("path", ["a\0b", "", "/dev/null", "/dev/zero", "x" * 5000, 5, None])
def test_15_paths_that_are_no_bundle(path: Any) -> None:
    with pytest.raises(BadBundle):
        Bundle(path)


def packed(folder: Path) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            archive.write(path, path.relative_to(folder).as_posix())
    return stream.getvalue()


def test_16_seeded_damage_of_one_file(bundle_folder: Path, tmp_path: Path) -> None:
    """300 mutations of a .picme, most of them where a zip keeps its structure."""
    good, random, path = packed(bundle_folder), np.random.default_rng(16), tmp_path / "b.picme"
    directory = good.rfind(b"PK\x01\x02", 0, good.find(b"PK\x01\x02") + 5)
    refused = 0
    for _ in range(300):
        data = bytearray(good)
        first = directory if random.uniform() < 0.8 else 0
        for _ in range(random.integers(1, 5)):
            data[random.integers(first, len(data))] = random.integers(256)
        path.write_bytes(data[: random.integers(1, len(data))] if random.uniform() < 0.1 else data)
        try:
            Bundle(path).verify()
        except BadBundle:
            refused += 1
    assert refused > 200


def test_16_swapped_between_check_and_load(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is hashed is what is loaded: a file that changes after it was read changes nothing."""
    bundle = Bundle(folder)
    entry = bundle.manifest.graph("decoder")
    good = (folder / entry.file).read_bytes()
    sha256 = hashlib.sha256

    def swap(data: bytes) -> Any:
        (folder / entry.file).write_bytes(bytes(len(good)))
        return sha256(data)

    monkeypatch.setattr(hashlib, "sha256", swap)
    assert bundle.read(entry) == good
    with pytest.raises(BadBundle, match="was changed"):
        bundle.read(entry)


def test_16_empty_sparse_and_growing_files(folder: Path) -> None:
    path = folder / "encoder.onnx"
    size = path.stat().st_size
    for length in (0, size - 1, size + 1, 100 << 30):
        os.truncate(path, length)  # 100 GB of nothing take no space
        with pytest.raises(BadBundle, match="bytes"):
            Completer(folder, "cpu")
    os.truncate(path, 0)
    sparse = folder.parent / "sparse.picme"
    sparse.touch()
    os.truncate(sparse, 100 << 30)
    with pytest.raises(BadBundle):
        Bundle(sparse)
    rewrite(folder, lambda m: m["graphs"][0].update(bytes=100 << 30))
    with pytest.raises(BadBundle):
        Bundle(folder)


def model_like(folder: Path, name: str) -> onnx.ModelProto:
    return onnx.load(folder / f"{name}.onnx")


def external(model: onnx.ModelProto, location: str) -> None:
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", "4")):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value


def custom(model: onnx.ModelProto) -> None:
    model.graph.node[0].domain = "com.evil"
    model.opset_import.append(helper.make_opsetid("com.evil", 1))


def giant(model: onnx.ModelProto) -> None:
    """A kilobyte that declares a gigabyte."""
    del model.graph.initializer[0].dims[:]
    model.graph.initializer[0].dims.extend([1 << 28])
    model.graph.initializer[0].raw_data = b"1234"


def renamed(model: onnx.ModelProto) -> None:
    for value in model.graph.output:
        value.name = value.name + "x"


def extra(model: onnx.ModelProto) -> None:
    model.graph.output.append(helper.make_tensor_value_info(model.graph.node[0].output[0], TensorProto.FLOAT, None))


def lying(model: onnx.ModelProto) -> None:
    """Declares the right shape and makes another: the shape is known only when it runs."""
    node = next(n for n in model.graph.node if n.output[0] == "log_weights")
    node.output[0] = "true_weights"
    for name, values in (("zero", [0]), ("short", [2]), ("axis", [1])):
        model.graph.initializer.append(numpy_helper.from_array(np.array(values, np.int64), name))
    model.graph.node.append(helper.make_node("NonZero", ["true_weights"], ["where"]))  # a shape that depends on data
    model.graph.node.append(helper.make_node("Shape", ["where"], ["known"]))
    model.graph.node.append(helper.make_node("Min", ["known", "short"], ["few"]))
    model.graph.node.append(helper.make_node("Slice", ["few", "zero", "axis"], ["end"]))
    model.graph.node.append(helper.make_node("Slice", ["true_weights", "zero", "end", "axis"], ["log_weights"]))


HOSTILE: dict[str, tuple[str, Callable[[onnx.ModelProto], object]]] = {
    "external data, absolute": ("encoder", lambda m: external(m, "/etc/passwd")),
    "external data, upwards": ("encoder", lambda m: external(m, "../../secret")),
    "external data, in memory": ("encoder", lambda m: external(m, "*/_ORT_MEM_ADDR_/*")),
    "custom operators": ("decoder", custom),
    "a gigabyte from a kilobyte": ("mixture", giant),
    "other names": ("mixture", renamed),
    "more outputs": ("encoder", extra),
    "an opset of the future": ("mixture", lambda m: m.opset_import[0].__setattr__("version", 9999)),
    "a format of the future": ("mixture", lambda m: m.__setattr__("ir_version", 9999)),
    "an operator that is none": ("mixture", lambda m: m.graph.node[0].__setattr__("op_type", "Evil")),
    "a node without inputs": ("decoder", lambda m: m.graph.node[3].input.__delitem__(slice(None))),
    "no nodes": ("decoder", lambda m: m.graph.node.__delitem__(slice(None))),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_17_hostile_graphs(folder: Path, kind: str) -> None:
    name, change = HOSTILE[kind]
    model = model_like(folder, name)
    change(model)
    replace_graph(folder, name, model.SerializeToString())
    with pytest.raises(BadBundle):
        Completer(folder, "cpu", 1)


def test_17_a_graph_that_does_not_make_what_it_declares(folder: Path) -> None:
    model = model_like(folder, "mixture")
    lying(model)
    replace_graph(folder, "mixture", model.SerializeToString())
    with pytest.raises(BadBundle, match="log_weights of shape"), Completer(folder, "cpu", 1) as completer:
        completer.complete(PHOTO, MASK, n=1, seed=0)


@pytest.mark.parametrize("change", [{"image_size": 64}, {"image_size": 16}, {"latent": 8}, {"primitives": 2}])
def test_17_a_manifest_that_does_not_fit_its_graphs(folder: Path, change: dict[str, int]) -> None:
    rewrite(folder, lambda m: m.update(change))
    try:
        with Completer(folder, "cpu", 1) as completer:
            made = completer.complete(PHOTO, MASK, n=1, seed=0)[0].image
            assert made.shape == PHOTO.shape
    except PicmeError:
        pass


def test_17_seeded_damage_of_a_graph(folder: Path) -> None:
    """40 mutations of the bytes before the weights, vouched for by the manifest: loaded and run, or refused."""
    good, random = (folder / "mixture.onnx").read_bytes(), np.random.default_rng(17)
    model = onnx.load_from_string(good)
    structure = len(good) - sum(len(t.raw_data) for t in model.graph.initializer)
    assert structure > 100
    for _ in range(40):
        data = bytearray(good)
        for _ in range(random.integers(1, 4)):
            data[random.integers(min(structure, 600))] = random.integers(256)
        replace_graph(folder, "mixture", bytes(data))
        try:
            with Completer(folder, "cpu", 1) as completer:
                completer.complete(PHOTO, MASK, n=1, seed=0)
        except PicmeError:
            pass


class FakeTensorRt(ModuleType):
    """Stands for the module where there is none: nothing of an engine may reach it."""

    __version__ = "10.9.0.34"
    Logger = type("Logger", (), {"ERROR": 0, "__init__": lambda self, level: None})

    class Runtime:
        def __init__(self, logger: object) -> None:
            pass

        def deserialize_cuda_engine(self, data: bytes) -> None:
            pytest.fail("an engine was handed to TensorRT")


ENGINES: dict[str, bytes] = {
    "truncated": b"",
    "tampered": b"tampered",
    "a page": b"<!doctype html><title>404</title>",
    "prefixed": len(b"{}").to_bytes(4, "little") + b"{}",
}


@pytest.mark.parametrize("kind", ENGINES)
def test_18_engines_that_were_changed(folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused by size and hash before TensorRT sees a byte, with a version and a card that would fit."""
    bundle = Bundle(folder)
    for engine in bundle.manifest.engines:
        good = (folder / engine.file).read_bytes()
        bad = ENGINES[kind]
        data = good[: len(good) // 2] if kind == "truncated" else bad + good[len(bad) * (kind != "prefixed") :]
        (folder / engine.file).write_bytes(data)
        with pytest.raises(BadBundle):
            bundle.read(engine)
    fake = FakeTensorRt("tensorrt_rtx")
    fake.__version__ = bundle.manifest.engines[0].version
    fake.__spec__ = sys.modules["json"].__spec__
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", fake)
    monkeypatch.setattr("picme_sdk.backends.tensorrt.open_cuda", lambda: None)
    monkeypatch.setattr("picme_sdk.backends.tensorrt.nvidia_capability", lambda: 89)
    with pytest.raises(BadBundle):
        Completer(folder, "rtx")


@pytest.mark.parametrize(
    ("module", "version", "capability", "shows"),
    [("tensorrt_rtx", "0.0.1", 89, "0.0.1"), ("tensorrt_rtx", None, 75, "sm_75"), ("tensorrt", "11.1.0", 89, "none")],
    ids=["another version", "another card", "another builder"],
)
def test_18_engines_for_elsewhere(
    bundle_folder: Path, module: str, version: str | None, capability: int, shows: str
) -> None:
    """Refused by the manifest, both versions named, with the command that builds engines for here."""
    bundle = Bundle(bundle_folder)
    built = bundle.manifest.engines[0].version
    with pytest.raises(BackendUnavailable) as caught:
        choose_engines(bundle.manifest, module, version or built, capability)
    assert shows in str(caught.value)
    assert module == "tensorrt" or built in caught.value.given
    odd = Bundle(bundle_folder)
    odd.path = Path("my bundle; rm -rf x")
    assert "--from-bundle 'my bundle; rm -rf x'" in rebuild(odd, module), "a command that can be pasted"


def test_18_the_manifest_may_not_lie_about_an_engine(bundle_folder: Path) -> None:
    manifest = Bundle(bundle_folder).manifest
    for change in (
        {"target": "any"},
        {"builder": "cuda"},
        {"version": "latest"},
        {"profiles": ((4, 2, 1),)},
        {"profiles": ()},
        {"source": "x"},
    ):
        engines = (replace(manifest.engines[0], **change), *manifest.engines[1:])  # type: ignore[arg-type]
        with pytest.raises(BadBundle):
            parse_manifest(manifest_bytes(replace(manifest, engines=engines)))
