"""The export command as people use it: bundles, engines, refusals."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
import torch
from safetensors.torch import load_file, save_file

from picme_sdk.bundle.bundle import Bundle
from picme_sdk.contract import GRAPHS
from picme_sdk.errors import BadBundle
from tests.conftest import ROOT
from training.checkpoint import load_weights


def export(cwd: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "export/to_trt.py"), *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True)


def test_the_bundle_has_graphs_engines_and_numbers(exported_folder: Path) -> None:
    bundle = Bundle(exported_folder)
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
    assert manifest.engines[2].profiles == ((1, 6, 16),)
    assert {(c.graph, c.compared) for c in manifest.verified} == {
        ("encoder", "torch-float32"), ("mixture", "torch-float32"), ("decoder", "torch-float32"), ("decoder", "float32-float16"),
    }  # fmt: skip
    for number in manifest.verified:
        better = number.value >= number.limit if number.measure == "psnr_db" else number.value <= number.limit
        assert better, number
    assert f"{manifest.verified[0].value:.3g}" in (exported_folder / "report.md").read_text()


def test_engines_are_pure_plans(exported_folder: Path) -> None:
    trt = pytest.importorskip("tensorrt_rtx")
    runtime = trt.Runtime(trt.Logger(trt.Logger.INTERNAL_ERROR))
    for engine in Bundle(exported_folder).manifest.engines:
        header = (exported_folder / engine.file).read_bytes()[: runtime.engine_header_size]
        _, diagnostics = runtime.get_engine_validity(header)
        assert diagnostics != 32, "32 = malformed"


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


def test_nothing_is_overwritten_without_force(checkpoint: Path, exported_folder: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(exported_folder, tmp_path / "b"))
    before = (out / "picme.json").read_bytes()
    done = export(tmp_path, "--from-bundle", exported_folder, "--out", out, "--builder", "none")
    assert done.returncode == 2
    assert "--force" in done.stderr
    assert (out / "picme.json").read_bytes() == before
    done = export(tmp_path, "--from-bundle", exported_folder, "--out", out, "--builder", "none", "--force")
    assert done.returncode == 0, done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["b"], "nothing is left beside it"
    precious = tmp_path / "holiday"
    precious.mkdir()
    assert (
        export(tmp_path, "--from-bundle", exported_folder, "--out", precious, "--builder", "none", "--force").returncode
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
def test_impossible_wishes_are_refused(exported_folder: Path, tmp_path: Path, arguments: list[str], says: str) -> None:
    done = export(tmp_path, "--from-bundle", exported_folder, "--out", "b", *arguments)
    assert done.returncode == 2
    assert any(part in done.stderr for part in says.split("|")), done.stderr


def test_printed_polygraphy_commands_run(exported_folder: Path) -> None:
    printed = (exported_folder.parent / "printed.txt").read_text()
    lines = [line.strip() for line in printed.splitlines() if "polygraphy run" in line]
    assert len(lines) == 9, "each graph timed and on saved inputs, each engine timed"
    scripts = Path(sys.executable).parent
    for line in (line for line in lines if "--onnxrt" in line):
        words = line.split()
        done = subprocess.run([sys.executable, str(scripts / words[0]), *words[1:]], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "PASSED" in done.stdout


def test_inspect_prints_the_bundle(exported_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from picme_sdk.cli import main

    assert main(["inspect", str(exported_folder)]) == 0
    printed = capsys.readouterr().out
    assert "32x32, 4 primitives, latent 16" in printed
    assert printed.count("  engine ") == 3
    assert printed.count("  check ") == 6
    assert main(["inspect", str(exported_folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "tiny32"
    assert main(["inspect", str(exported_folder / "missing")]) == 2
    assert "expected a bundle" in capsys.readouterr().err


def test_a_damaged_source_bundle_is_refused(exported_folder: Path, tmp_path: Path) -> None:
    source = Path(shutil.copytree(exported_folder, tmp_path / "source"))
    (source / "decoder.onnx").write_bytes(b"x" * (source / "decoder.onnx").stat().st_size)
    with pytest.raises(BadBundle):
        Bundle(source).verify()
    assert export(tmp_path, "--from-bundle", source, "--out", "b", "--builder", "none").returncode == 2
