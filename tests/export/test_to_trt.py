"""The export command as people use it, and its gates."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from safetensors.torch import load_file, save_file

from export.graphs import DecoderGraph, EncoderGraph, graph_specs
from export.onnx_files import check, half, to_onnx, without_identity_poolings
from export.verify import Chain, hard_photos, latents, verify
from picme_sdk.bundle import Bundle
from picme_sdk.errors import BadBundle, ExportError
from picme_sdk.manifest import GRAPHS
from tests.conftest import ROOT
from training.checkpoint import load_weights
from training.model import Picme, PicmeConfig


def export(cwd: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "export/to_trt.py"), *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True)


@pytest.fixture(scope="module")
def graphs(bundle_folder: Path) -> dict[str, onnx.ModelProto]:
    return {name: onnx.load(bundle_folder / f"{name}.onnx") for name in GRAPHS}


def test_the_bundle_has_graphs_engines_and_numbers(bundle_folder: Path) -> None:
    bundle = Bundle(bundle_folder)
    bundle.verify()
    manifest = bundle.manifest
    assert {(g.graph, g.precision) for g in manifest.graphs} == {
        ("encoder", "float32"), ("mixture", "float32"), ("decoder", "float32"), ("encoder", "float16"), ("decoder", "float16"),
    }  # fmt: skip
    assert [e.graph for e in manifest.engines] == list(GRAPHS)
    for engine in manifest.engines:
        assert engine.builder == "tensorrt_rtx"
        assert engine.target == "ampere+"
        assert engine.version in engine.file
        assert engine.source == manifest.graph(engine.graph, engine.precision).sha256
    assert manifest.engines[2].profile == (1, 6, 16)
    assert {(c.graph, c.compared) for c in manifest.verified} == {
        ("encoder", "torch-float32"), ("mixture", "torch-float32"), ("decoder", "torch-float32"), ("decoder", "float32-float16"),
    }  # fmt: skip
    for number in manifest.verified:
        better = number.value >= number.limit if number.measure == "psnr_db" else number.value <= number.limit
        assert better, number
    assert f"{manifest.verified[0].value:.3g}" in (bundle_folder / "report.md").read_text()


def test_engines_are_pure_plans(bundle_folder: Path) -> None:
    trt = pytest.importorskip("tensorrt_rtx")
    runtime = trt.Runtime(trt.Logger(trt.Logger.INTERNAL_ERROR))
    for engine in Bundle(bundle_folder).manifest.engines:
        header = (bundle_folder / engine.file).read_bytes()[: runtime.engine_header_size]
        _, diagnostics = runtime.get_engine_validity(header)
        assert diagnostics != 32, "32 = malformed"


def test_graphs_keep_their_contract(graphs: dict[str, onnx.ModelProto]) -> None:
    for graph in graphs.values():
        assert [(o.domain, o.version) for o in graph.opset_import] == [("", 20)]
        onnx.checker.check_model(graph, full_check=True)
        assert not graph.metadata_props
        assert str(ROOT) not in str(graph), "nothing of the exporting machine"
    first = {node.input[0]: node.op_type for node in graphs["encoder"].graph.node if node.input[0] in ("image", "mask")}
    assert first == {"image": "Cast", "mask": "Cast"}
    assert next(n.op_type for n in graphs["decoder"].graph.node if "image" in n.output) == "Cast"


def test_fp16_graphs_compute_in_half(bundle_folder: Path) -> None:
    for name in ("encoder", "decoder"):
        model = onnx.load(bundle_folder / f"{name}.fp16.onnx")
        weights = [t for t in model.graph.initializer if len(t.dims) == 4]
        assert {t.data_type for t in weights} == {onnx.TensorProto.FLOAT16}


def test_encoder_never_looks_into_the_hole(bundle_folder: Path) -> None:
    session = onnxruntime.InferenceSession(bundle_folder / "encoder.onnx")
    image, mask = hard_photos(32)["photo"]
    other = np.where(mask >= 128, 255 - image, image)
    first, second = (session.run(None, {"image": i, "mask": mask}) for i in (image, other))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    faint = np.where(mask >= 128, 128, 127).astype(np.uint8)
    assert all(
        np.array_equal(a, b) for a, b in zip(first, session.run(None, {"image": image, "mask": faint}), strict=True)
    )


@pytest.fixture(params=[(32, 4, (16, 24)), (64, 4, (8, 12, 16)), (32, 2, (8, 8, 8))], ids=str)
def shaped(request: pytest.FixtureRequest) -> Picme:
    """Networks of other sizes, patches and numbers of stages."""
    size, patch, widths = request.param
    blocks = tuple(1 for _ in widths)
    torch.manual_seed(0)
    return Picme(
        PicmeConfig(
            image_size=size,
            patch=patch,
            widths=widths,
            encoder_blocks=blocks,
            decoder_blocks=blocks,
            code=8,
            latent=6,
        )
    ).eval()


def test_the_rearranged_encoder_sees_what_the_network_sees(shaped: Picme) -> None:
    size = shaped.config.image_size
    image, mask = torch.randint(0, 256, (2, 1, size, size, 3), dtype=torch.uint8).unbind(0)
    mask = (mask[..., :1] > 170).to(torch.uint8) * 255
    hole = (mask.permute(0, 3, 1, 2) > 0).float()
    with torch.no_grad():
        context, skips = shaped.encode((image.permute(0, 3, 1, 2) / 127.5 - 1) * (1 - hole), hole)
        found = EncoderGraph(shaped)(image, mask)
    for expected, got in zip((context, *skips), found, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_the_rearranged_decoder_paints_what_the_network_paints(shaped: Picme) -> None:
    model, size = shaped, shaped.config.image_size
    with torch.no_grad():
        for lift in model.decoder.lifts.values():
            lift.weight.add_(torch.randn_like(lift.weight) * 0.1)
        skips = model.encode(torch.rand(1, 3, size, size), torch.zeros(1, 1, size, size)).skips
        z = torch.randn(3, 6)
        expected = (model.decode(skips, z) * 127.5 + 127.5).round().clamp(0, 255).permute(0, 2, 3, 1)
        painted = DecoderGraph(model)(z, list(skips)).float()
    assert (painted - expected).abs().max() <= 1
    assert (painted != expected).float().mean() < 1e-3, "only where rounding is a tie"


def test_random_operators_are_refused() -> None:
    node = onnx.helper.make_node("RandomNormal", [], ["y"], shape=[1])
    value = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "g", [], [value]), opset_imports=[onnx.helper.make_opsetid("", 20)]
    )
    with pytest.raises(ExportError, match="RandomNormal"):
        check(model, "decoder")


@pytest.mark.parametrize("graph", GRAPHS)
def test_a_graph_that_differs_from_torch_fails_its_gate(
    checkpoint: Path, graphs: dict[str, onnx.ModelProto], graph: str
) -> None:
    model, _, _ = load_weights(checkpoint)
    damaged = onnx.ModelProto.FromString(graphs[graph].SerializeToString())
    weight = next(t for t in damaged.graph.initializer if t.name.endswith("bias") and t.dims[0] > 3)
    weight.raw_data = (np.frombuffer(weight.raw_data, np.float32) + 0.5).tobytes()
    with pytest.raises(ExportError, match=rf"{graph}.*input.*expected at most"):
        verify(graph_specs(model), {"float32": {**graphs, graph: damaged}}, 4)


def test_half_precision_that_overflows_fails_its_gate(checkpoint: Path, graphs: dict[str, onnx.ModelProto]) -> None:
    model, _, _ = load_weights(checkpoint)
    twin = half(model)
    with torch.no_grad():
        twin.context_head.out.weight.fill_(60000)
    twins = to_onnx(twin, 16, ("encoder", "decoder"))
    with pytest.raises(ExportError, match="encoder in float16"):
        verify(graph_specs(model), {"float32": graphs, "float16": twins}, 4)


def test_onnx_equals_torch_for_the_whole_chain(checkpoint: Path, graphs: dict[str, onnx.ModelProto]) -> None:
    model, _, _ = load_weights(checkpoint)
    photos = hard_photos(32)
    torch_chain, onnx_chain = Chain.of_torch(graph_specs(model)), Chain.of_onnx(graphs, "float32")
    encoded, mixture = onnx_chain.encode(photos)
    z = [latents(m, 5) for m in mixture]
    for a, b in zip(onnx_chain.decode(encoded, z), torch_chain.decode(torch_chain.encode(photos)[0], z), strict=True):
        assert a.shape == (5, 32, 32, 3)
        assert np.abs(a.astype(int) - b.astype(int)).max() <= 1


def test_int8_goes_without_poolings_over_one_pixel_and_keeps_all_others() -> None:
    def pooling(source: str, target: str, side: int, stride: int) -> onnx.NodeProto:
        return onnx.helper.make_node("MaxPool", [source], [target], kernel_shape=[side] * 2, strides=[stride] * 2)

    nodes = [
        pooling("x", "a", 1, 1),
        pooling("a", "b", 1, 1),
        onnx.helper.make_node("Relu", ["b"], ["c"]),
        pooling("c", "d", 2, 2),
        pooling("d", "e", 1, 2),  # picks every other pixel
        pooling("e", "y", 1, 1),  # gives the output its name
    ]
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 2, s, s]) for name, s in (("x", 8), ("y", 2))]  # fmt: skip
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
    bare = without_identity_poolings(model)
    assert [(n.op_type, list(n.input), list(n.output)) for n in bare.graph.node] == [
        ("Relu", ["x"], ["c"]), ("MaxPool", ["c"], ["d"]), ("MaxPool", ["d"], ["e"]), ("MaxPool", ["e"], ["y"]),
    ]  # fmt: skip
    assert len(model.graph.node) == 6, "the original is not touched"
    x = np.random.default_rng(0).standard_normal((1, 2, 8, 8), np.float32)
    before, after = (onnxruntime.InferenceSession(m.SerializeToString()).run(None, {"x": x})[0] for m in (model, bare))
    assert np.array_equal(before, after)


def test_int8_is_kept_only_if_it_passes(checkpoint: Path, faces: Path, tmp_path: Path) -> None:
    done = export(
        tmp_path, "--ckpt", checkpoint, "--out", "b", "--builder", "none", "--precision", "fp32", "--int8", faces
    )
    assert done.returncode == 0, done.stderr
    manifest = Bundle(tmp_path / "b").manifest
    measured = [c for c in manifest.verified if c.compared == "float32-int8"]
    if "int8" in manifest.precisions():
        assert all(c.value >= 30 for c in measured)
        quantised = onnx.load(tmp_path / "b" / "decoder.int8.onnx")
        assert "QuantizeLinear" in {n.op_type for n in quantised.graph.node}
    else:
        assert "int8 is left out" in done.stderr
        assert "expected at least 30" in done.stderr


def test_without_a_builder_it_says_how_to_build_later(checkpoint: Path, tmp_path: Path) -> None:
    done = export(
        tmp_path,
        "--ckpt",
        checkpoint,
        "--out",
        "one.picme",
        "--builder",
        "none",
        "--precision",
        "fp32",
        "--max-batch",
        "4",
    )
    assert done.returncode == 0, done.stderr
    assert "--from-bundle one.picme" in done.stdout
    assert Bundle(tmp_path / "one.picme").manifest.max_batch == 4
    assert [p.name for p in tmp_path.iterdir()] == ["one.picme"]

    later = export(
        tmp_path,
        "--from-bundle",
        "one.picme",
        "--out",
        "later",
        "--builder",
        "rtx",
        "--target",
        "sm_86,sm_89",
        "--precision",
        "fp32",
    )
    assert later.returncode == 0, later.stderr
    engines = Bundle(tmp_path / "later").manifest.engines
    assert {e.target for e in engines} == {"sm_86+sm_89"}
    assert {e.precision for e in engines} == {"float32"}


def test_pt_files_work_and_never_run_code(checkpoint: Path, tmp_path: Path) -> None:
    _, _, note = load_weights(checkpoint)
    torch.save({"config": note["config"], "size": 32, "weights": load_file(checkpoint)}, tmp_path / "m.pt")
    assert load_weights(tmp_path / "m.pt")[0].config.image_size == 32

    class Hostile:
        def __reduce__(self):
            return Path.touch, (tmp_path / "canary",)

    torch.save({"weights": Hostile()}, tmp_path / "evil.pt")
    done = export(tmp_path, "--ckpt", "evil.pt", "--out", "b", "--builder", "none")
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "canary").exists()
    assert not (tmp_path / "b").exists()


def damaged(checkpoint: Path, tmp_path: Path, kind: str) -> Path:
    tensors, path = load_file(checkpoint), tmp_path / f"{kind}.safetensors"
    from safetensors import safe_open

    with safe_open(checkpoint, "pt") as file:
        metadata = file.metadata()
    if kind == "nan":
        tensors["decoder.spread.bias"].fill_(float("nan"))
    elif kind == "missing":
        del tensors["decoder.spread.bias"]
    elif kind == "other":
        tensors["decoder.spread.bias"] = torch.zeros(3)
    elif kind == "optimizer":
        tensors = {"adam.model.0.exp_avg": torch.zeros(3)}
    elif kind == "plain":
        metadata = None
    save_file(tensors, path, metadata)
    if kind == "truncated":
        path.write_bytes(path.read_bytes()[:1000])
    return path


@pytest.mark.parametrize("kind", ["nan", "missing", "other", "optimizer", "plain", "truncated"])
def test_wrong_checkpoints_get_one_clear_line_and_exit_code_2(checkpoint: Path, tmp_path: Path, kind: str) -> None:
    done = export(tmp_path, "--ckpt", damaged(checkpoint, tmp_path, kind), "--out", "b", "--builder", "none")
    assert done.returncode == 2
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].count(" | ") == 2
    assert not (tmp_path / "b").exists()


def test_nothing_is_overwritten_without_force(checkpoint: Path, bundle_folder: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(bundle_folder, tmp_path / "b"))
    before = (out / "picme.json").read_bytes()
    done = export(tmp_path, "--from-bundle", bundle_folder, "--out", out, "--builder", "none")
    assert done.returncode == 2
    assert "--force" in done.stderr
    assert (out / "picme.json").read_bytes() == before
    done = export(tmp_path, "--from-bundle", bundle_folder, "--out", out, "--builder", "none", "--force")
    assert done.returncode == 0, done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["b"], "nothing is left beside it"
    precious = tmp_path / "holiday"
    precious.mkdir()
    assert (
        export(tmp_path, "--from-bundle", bundle_folder, "--out", precious, "--builder", "none", "--force").returncode
        == 2
    )
    assert precious.is_dir()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--builder", "tensorrt"], "pip install|without a GPU"),
        (["--builder", "rtx", "--target", "sm_13"], "expected sm_NN among"),
        (["--max-batch", "0"], "1 to 1024"),
    ],
)
def test_impossible_wishes_are_refused(bundle_folder: Path, tmp_path: Path, arguments: list[str], says: str) -> None:
    done = export(tmp_path, "--from-bundle", bundle_folder, "--out", "b", *arguments)
    assert done.returncode == 2
    assert any(part in done.stderr for part in says.split("|")), done.stderr


def test_printed_polygraphy_commands_run(bundle_folder: Path) -> None:
    printed = (bundle_folder.parent / "printed.txt").read_text()
    lines = [line.strip() for line in printed.splitlines() if "polygraphy run" in line]
    assert len(lines) == 9, "each graph timed and on saved inputs, each engine timed"
    scripts = Path(sys.executable).parent
    for line in (line for line in lines if "--onnxrt" in line):
        words = line.split()
        done = subprocess.run([sys.executable, str(scripts / words[0]), *words[1:]], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "PASSED" in done.stdout


def test_inspect_prints_the_bundle(bundle_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from picme_sdk.cli import main

    assert main(["inspect", str(bundle_folder)]) == 0
    printed = capsys.readouterr().out
    assert "32x32, 4 primitives, latent 16" in printed
    assert printed.count("  engine ") == 3
    assert printed.count("  check ") == 6
    assert main(["inspect", str(bundle_folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "tiny32"
    assert main(["inspect", str(bundle_folder / "missing")]) == 2
    assert "expected a bundle" in capsys.readouterr().err


def test_a_damaged_source_bundle_is_refused(bundle_folder: Path, tmp_path: Path) -> None:
    source = Path(shutil.copytree(bundle_folder, tmp_path / "source"))
    (source / "decoder.onnx").write_bytes(b"x" * (source / "decoder.onnx").stat().st_size)
    with pytest.raises(BadBundle):
        Bundle(source).verify()
    assert export(tmp_path, "--from-bundle", source, "--out", "b", "--builder", "none").returncode == 2
