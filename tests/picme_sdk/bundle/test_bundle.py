"""The bundle format: what is accepted, and that every other thing is a BadBundle."""

import json
import os
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from picme_sdk.bundle.bundle import Bundle
from picme_sdk.bundle.manifest import Ambiguity, hash_of_graphs, manifest_bytes, parse_manifest, seal_of
from picme_sdk.completer import Completer
from picme_sdk.contract import BUNDLE_KEYS, MAX_MANIFEST_BYTES
from picme_sdk.errors import BadBundle
from tests.conftest import TINY_FORMAT_1


@pytest.fixture
def folder(bundle_folder: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(bundle_folder, tmp_path / "bundle"))


def rewrite(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest and seal it again, as an attacker would."""
    path = folder / "picme.json"
    table = json.loads(path.read_text())
    change(table)
    table["seal"] = "0" * 64
    data = (json.dumps(table, indent=1) + "\n").encode()
    path.write_bytes(data.replace(b'"seal": "' + b"0" * 64, b'"seal": "' + seal_of(data).encode()))


def test_a_good_bundle_is_verified_and_read(bundle_folder: Path) -> None:
    bundle = Bundle(bundle_folder)
    bundle.verify()
    assert bundle.manifest.image_size == 32
    assert bundle.manifest.precisions() == ("float32", "float16")
    entry = bundle.manifest.graph("decoder")
    assert bundle.read(entry) == (bundle_folder / entry.file).read_bytes()


def test_a_manifest_survives_writing_and_reading(bundle_folder: Path) -> None:
    data = (bundle_folder / "picme.json").read_bytes()
    assert manifest_bytes(parse_manifest(data)) == data


def test_one_file_holds_the_same_bundle(folder: Path, tmp_path: Path) -> None:
    packed = tmp_path / "tiny.picme"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder).as_posix())
    bundle = Bundle(packed)
    bundle.verify()
    assert bundle.manifest == Bundle(folder).manifest


def test_one_changed_byte_of_any_file_is_found(folder: Path) -> None:
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        good = path.read_bytes()
        middle = len(good) // 2
        path.write_bytes(good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :])
        with pytest.raises(BadBundle):
            Bundle(folder).verify()
        path.write_bytes(good)
    Bundle(folder).verify()


def test_missing_shortened_and_unlisted_files_are_found(folder: Path) -> None:
    model = folder / "encoder.onnx"
    good = model.read_bytes()
    model.write_bytes(good[:-1])
    with pytest.raises(BadBundle, match="bytes"):
        Bundle(folder).verify()
    model.unlink()
    with pytest.raises(BadBundle, match=r"encoder\.onnx"):
        Bundle(folder).verify()
    model.write_bytes(good)
    (folder / "extra.txt").write_text("hello")
    with pytest.raises(BadBundle, match=r"extra\.txt is not in the manifest"):
        Bundle(folder).verify()


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "C:\\x", "c:/x", "a/../../x", "x#/../../y", "a\\b", "A.onnx", "a//b", "./a", "a/", ".", "a\0b", "picme.json"]
)  # fmt: skip
def test_names_that_leave_the_bundle_are_refused(folder: Path, name: str) -> None:
    rewrite(folder, lambda m: m["graphs"][0].update(file=name))
    with pytest.raises(BadBundle, match="file"):
        Bundle(folder)


MEASURED = {
    "device": "a card", "driver": "570.1", "clocks": "", "backend": "tensorrt 10.13.3.9.post1", "graph": "decoder",
    "precision": "float16", "results": 6, "rounds": 200, "p50_ms": 1.5, "p99_ms": 2,
}  # fmt: skip


def test_format_2_carries_all_that_it_is_for(folder: Path) -> None:
    calibrated = {
        "scale": 0.5,
        "power": 2,
        "weights": [0.25] * json.loads((folder / "picme.json").read_text())["latent"],
    }

    def fill(m: dict[str, Any]) -> None:
        m.update(knows="pets' faces", ambiguity=calibrated, model_id="ab" * 32)
        m["graphs"][0].update(storage="float16")
        m["engines"][0].update(version="10.13.3.9.post1", profiles=[[1, 1, 1], [1, 6, 16]])
        m["measured"].append(MEASURED)

    rewrite(folder, fill)
    manifest = Bundle(folder).manifest
    assert (manifest.format, manifest.knows, manifest.model_id) == (2, "pets' faces", "ab" * 32)
    assert manifest.ambiguity == Ambiguity(0.5, 2.0, (0.25,) * manifest.latent)
    assert manifest.graphs[0].storage == "float16"
    assert manifest.engines[0].version == "10.13.3.9.post1"
    assert manifest.engines[0].profiles == ((1, 1, 1), (1, 6, 16))
    assert manifest.measured[0].backend == "tensorrt 10.13.3.9.post1"
    again = parse_manifest(manifest_bytes(manifest))
    assert replace(again, seal="") == replace(manifest, seal="")


def as_format_1(m: dict[str, Any]) -> None:
    """What a format 1 exporter wrote of the same model."""
    m.update(format=1)
    for entry in m["engines"]:
        entry["profile"] = entry["profiles"][0]
    for kind, entries in (("manifest", [m]), ("graph", m["graphs"]), ("engine", m["engines"])):
        for entry in entries:
            for key in entry.keys() - set(BUNDLE_KEYS[1][kind]):
                del entry[key]


def test_format_1_is_read_and_written_as_format_2(folder: Path) -> None:
    new = Bundle(folder).manifest
    rewrite(folder, as_format_1)
    bundle = Bundle(folder)
    bundle.verify()
    old = bundle.manifest
    assert old.format == 1
    assert old.model_id == new.model_id == hash_of_graphs(old.graphs)
    assert replace(old, format=2, seal=new.seal) == new
    assert parse_manifest(manifest_bytes(old)) == new


def test_a_bundle_that_was_written_in_format_1_is_read_and_runs() -> None:
    """The bytes that an exporter of format 1 wrote, not a rewritten manifest: its encoder has no finite flag."""
    bundle = Bundle(TINY_FORMAT_1)
    bundle.verify()
    assert bundle.manifest.format == 1
    assert "finite" not in {tensor.name for tensor in bundle.manifest.graph("encoder").outputs}
    mask = np.zeros((40, 50), np.uint8)
    mask[10:20, 10:20] = 255
    with Completer(TINY_FORMAT_1, threads=1) as completer:
        assert len(completer.complete(np.full((40, 50, 3), 90, np.uint8), mask, 2, seed=1)) == 2


def test_precision_is_per_graph(folder: Path) -> None:
    """An INT8 decoder beside a float32 encoder; float16 needs both, because its skips have another type."""

    def change(m: dict[str, Any]) -> None:
        half = next(g for g in m["graphs"] if (g["graph"], g["precision"]) == ("encoder", "float16"))
        m["graphs"].remove(half)
        decoder = next(g for g in m["graphs"] if (g["graph"], g["precision"]) == ("decoder", "float32"))
        m["graphs"].append({**decoder, "precision": "int8", "file": "decoder.int8.onnx"})

    rewrite(folder, change)
    manifest = Bundle(folder).manifest
    assert manifest.precisions() == ("float32", "int8")
    assert [manifest.graph(g, "int8").precision for g in ("encoder", "mixture", "decoder")] == ["float32", "float32", "int8"]  # fmt: skip


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "unknown key": lambda m: m.update(new=1),
    "missing key": lambda m: m.pop("card"),
    "unknown nested key": lambda m: m["graphs"][0].update(url="x"),
    "unknown card key": lambda m: m["card"].update(x=""),
    "format of the future": lambda m: m.update(format=3),
    "format 2 that says 1": lambda m: m.update(format=1),
    "format true": lambda m: m.update(format=True),
    "two lines of knowledge": lambda m: m.update(knows="pets\nand people"),
    "long knowledge": lambda m: m.update(knows="x" * 201),
    "bad model id": lambda m: m.update(model_id="pets"),
    "no storage": lambda m: m["graphs"][0].pop("storage"),
    "unknown storage": lambda m: m["graphs"][0].update(storage="int4"),
    "no scale": lambda m: m.update(ambiguity={"power": 1, "weights": None}),
    "scale 0": lambda m: m.update(ambiguity={"scale": 0, "power": 1, "weights": None}),
    "falling power": lambda m: m.update(ambiguity={"scale": 1, "power": -1, "weights": None}),
    "too few weights": lambda m: m.update(ambiguity={"scale": 1, "power": 1, "weights": [1.0]}),
    "a negative weight": lambda m: m.update(ambiguity={"scale": 1, "power": 1, "weights": [-1.0] * m["latent"]}),
    "no profile": lambda m: m["engines"][0].update(profiles=[]),
    "a version without a number": lambda m: m["engines"][0].update(version="latest"),
    "a version that is a path": lambda m: m["engines"][0].update(version="10.3/../x"),
    "a measurement of nothing": lambda m: m["measured"].append({}),
    "a negative time": lambda m: m["measured"].append({**MEASURED, "p50_ms": -1.0}),
    "text for a number": lambda m: m.update(image_size="256"),
    "true for a number": lambda m: m.update(primitives=True),
    "a number too large": lambda m: m.update(image_size=10**9),
    "negative": lambda m: m.update(latent=-1),
    "list for an object": lambda m: m.update(card=[]),
    "object for a list": lambda m: m.update(graphs={}),
    "no decoder": lambda m: m.update(graphs=[g for g in m["graphs"] if g["graph"] != "decoder"]),
    "a graph twice": lambda m: m["graphs"].append({**m["graphs"][0], "file": "other.onnx"}),
    "a file twice": lambda m: m["graphs"].append({**m["graphs"][0], "precision": "int8"}),
    "unknown graph": lambda m: m["graphs"][0].update(graph="upsampler"),
    "unknown builder": lambda m: m["engines"][0].update(builder="cuda"),
    "unknown target": lambda m: m["engines"][0].update(target="any"),
    "falling profile": lambda m: m["engines"][0].update(profiles=[[1, 6, 16], [4, 2, 1]]),
    "bad hash": lambda m: m["graphs"][0].update(sha256="ABC"),
    "bad shape": lambda m: m["graphs"][0]["inputs"][0].update(shape=[1, "m"]),
    "bad type": lambda m: m["graphs"][0]["inputs"][0].update(dtype="object"),
    "a huge file": lambda m: m["graphs"][0].update(bytes=10**12),
    "a huge list": lambda m: m.update(verified=[m["verified"][0]] * 1000),
    "control characters": lambda m: m.update(licence="a\0b"),
    "a long text": lambda m: m["card"].update(limits="x" * 5000),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_manifests_that_are_not_exactly_the_format_are_refused(
    folder: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    rewrite(folder, change)
    with pytest.raises(BadBundle, match=r"picme\.json"):
        Bundle(folder)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"format": NaN}', b'{"format": 1, "format": 1}', b" " * (MAX_MANIFEST_BYTES + 1)],
    ids=["empty", "open", "list", "null", "bytes", "deep", "nan", "repeated", "huge"],
)  # fmt: skip
def test_text_that_is_no_manifest_is_refused(folder: Path, data: bytes) -> None:
    (folder / "picme.json").write_bytes(data)
    with pytest.raises(BadBundle):
        Bundle(folder)


def test_what_is_no_bundle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.picme").write_text("hello")
    for name in ("empty", "text.picme", "missing"):
        with pytest.raises(BadBundle, match="expected a bundle"):
            Bundle(tmp_path / name)


def test_links_pipes_and_folders_in_place_of_files_are_refused(folder: Path, tmp_path: Path) -> None:
    model = folder / "encoder.onnx"
    outside = tmp_path / "outside.onnx"
    shutil.move(model, outside)
    model.symlink_to(outside)
    with pytest.raises(BadBundle, match="symbolic link"):
        Bundle(folder).verify()
    model.unlink()
    os.mkfifo(model)
    with pytest.raises(BadBundle, match="no regular file"):
        Bundle(folder).verify()
    model.unlink()
    model.mkdir()
    with pytest.raises(BadBundle, match=r"encoder\.onnx"):
        Bundle(folder).verify()


def test_a_pipe_named_as_a_bundle_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.picme")
    with pytest.raises(BadBundle, match="no regular file"):
        Bundle(tmp_path / "pipe.picme")


@pytest.mark.parametrize("trick", ["compressed", "twice"])
def test_zips_that_do_more_than_store_are_refused(folder: Path, tmp_path: Path, trick: str) -> None:
    packed = tmp_path / "tiny.picme"
    kind = zipfile.ZIP_DEFLATED if trick == "compressed" else zipfile.ZIP_STORED
    with zipfile.ZipFile(packed, "w", kind) as archive:
        archive.write(folder / "picme.json", "picme.json")
        if trick == "twice":
            with pytest.warns(UserWarning, match="Duplicate"):
                archive.write(folder / "picme.json", "picme.json")
    with pytest.raises(BadBundle, match=r"compressed|2 files"):
        Bundle(packed)


def test_messages_have_three_parts(tmp_path: Path) -> None:
    with pytest.raises(BadBundle) as caught:
        Bundle(tmp_path / "missing")
    assert str(caught.value).count(" | ") == 2
