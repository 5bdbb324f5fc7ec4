"""Attacks 19 and 20: missing cards, drivers and libraries; full disks, read-only folders, kill -9, two exporters at once."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from picme_sdk import Completer
from picme_sdk.backends import OPTIONS, onnxruntime
from picme_sdk.errors import BackendUnavailable
from tests.attacks.conftest import MASK, PHOTO
from tests.conftest import ROOT


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a card were there, whatever the machine has."""
    for module in ("picme_sdk.backends.cuda", "picme_sdk.backends.tensorrt"):
        monkeypatch.setattr(f"{module}.nvidia_capability", lambda: 89)


def broken_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str) -> None:
    for name in ("tensorrt", "tensorrt_rtx"):
        (tmp_path / f"{name}.py").write_text(f"raise {error}\n")
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize(
    "error", ["ImportError('libnvinfer.so.10')", "OSError('libcudart.so.12')", "RuntimeError('x')"]
)
def test_19_a_library_is_missing(
    bundle_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    card: None,
    error: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A named device raises; auto falls back, says so once, and tells the truth about what it runs on."""
    broken_module(tmp_path, monkeypatch, error)
    for device in ("tensorrt", "rtx"):
        with pytest.raises(BackendUnavailable, match="pip install"):
            Completer(bundle_folder, device)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "picme_sdk"), Completer(bundle_folder) as completer:
        assert completer.device == "cpu"
        assert completer.backend.startswith("onnxruntime ")
    (warning,) = caplog.records
    assert "running on cpu although a GPU is there" in warning.getMessage()


def test_19_no_driver_and_no_visible_card(bundle_folder: Path) -> None:
    """CUDA_VISIBLE_DEVICES="" in a process of its own: auto is silent and runs on the CPU, a named device raises."""
    script = """
import sys
from picme_sdk import Completer
from picme_sdk.errors import BackendUnavailable
with Completer(sys.argv[1]) as completer:
    assert completer.device == "cpu", completer.device
for device in ("cuda", "tensorrt", "rtx"):
    try:
        Completer(sys.argv[1], device)
    except BackendUnavailable as error:
        assert str(error).count(" | ") == 2
    else:
        raise SystemExit(device)
"""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", script, str(bundle_folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("graph", ["encoder", "mixture", "decoder"])
def test_19_out_of_memory_while_it_runs(bundle_folder: Path, monkeypatch: pytest.MonkeyPatch, graph: str) -> None:
    """What onnxruntime raises on a card without memory is an error of ours, and the completer can be used again."""
    import onnxruntime as runtime

    session, full = runtime.InferenceSession, []

    class Sometimes:
        """A session that runs out of memory while `full` names its graph."""

        def __init__(self, *given: Any, **options: Any) -> None:
            self.inner = session(*given, **options)
            first = self.inner.get_inputs()[0].name
            self.graph = {"image": "encoder", "context": "mixture"}.get(first, "decoder")

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        def run(self, names: list[str] | None, inputs: dict[str, Any]) -> Any:
            if self.graph in full:
                raise RuntimeError("CUDA failure 2: out of memory ; GPU=0")
            return self.inner.run(names, inputs)

    monkeypatch.setattr(runtime, "InferenceSession", Sometimes)
    with Completer(bundle_folder, "cpu", 1) as completer:
        full.append(graph)
        with pytest.raises(BackendUnavailable, match=f"{graph} failed on cpu: CUDA failure 2"):
            completer.complete(PHOTO, MASK, n=1, seed=0)
        full.clear()
        assert len(completer.complete(PHOTO, MASK, n=1, seed=0)) == 1


def test_19_a_provider_that_is_left_out_silently(
    bundle_folder: Path, card: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """onnxruntime starts a session on the CPU when the asked provider can't be loaded: that is noticed."""
    import onnxruntime as runtime

    providers = [*onnxruntime.PROVIDERS.values()]
    monkeypatch.setattr(runtime, "get_available_providers", lambda: providers)
    real = runtime.InferenceSession
    monkeypatch.setattr(
        runtime,
        "InferenceSession",
        lambda model, options, providers: real(model, options, providers=["CPUExecutionProvider"]),
    )
    option = next(o for o in OPTIONS if o.title == "ONNX Runtime with CUDA")
    assert option.device == "cuda"
    with pytest.raises(BackendUnavailable):
        Completer(bundle_folder, "cuda")


@pytest.fixture(scope="module")
def faults(bundle_folder: Path, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("faults")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "tests.attacks.faults", str(folder), str(bundle_folder), str(checkpoint)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("work", ["bundle", "bundle file", "checkpoint", "complete", "batch", "video"])
def test_20_killed_at_every_write(faults: dict[str, Any], work: str) -> None:
    """The old thing or the new one, whole: tests/attacks/faults.py raises for anything else. Both must have been seen."""
    killed = faults[work]["killed"]
    assert killed.keys() == {"old", "new"}
    assert faults[work]["events"]["all"] >= 3
    assert killed["old"] + killed["new"] >= 9


@pytest.mark.parametrize("work", ["bundle", "bundle file", "checkpoint", "complete", "batch", "video"])
def test_20_full_disk_at_byte_k(faults: dict[str, Any], work: str) -> None:
    """A clean error, the old thing as it was, nothing left beside it."""
    assert faults[work]["full"]["old"] >= 1
    assert sum(faults[work]["full"].values()) == 6


@pytest.mark.parametrize("work", ["race bundle", "race bundle file"])
def test_20_four_exporters_at_once(faults: dict[str, Any], work: str) -> None:
    """One wins, the others say that it exists, and nothing of theirs stays."""
    found = faults[work]
    assert sorted(found["codes"]) == [0, 3, 3, 3]
    assert found["codes"][int(found["winner"])] == 0
    assert len(found["left"]) == 1


READ_ONLY = """
import os, sys
from pathlib import Path
from picme_sdk.cli import main
from picme_sdk.errors import CheckpointError
from training.checkpoint import Progress, load_weights, save_weights
from export.write import write_bundle
from picme_sdk.bundle.bundle import Bundle
photo, mask, clip, bundle, checkpoint, good, closed = sys.argv[1:]
model, config, _ = load_weights(Path(checkpoint))
source = Bundle(bundle)
contents = {entry.file: source.read(entry) for entry in (*source.manifest.graphs, *source.manifest.engines)}

def works():
    yield "complete", lambda: main(["complete", photo, mask, "-n", "1", "-o", "new.png", "--bundle", bundle])
    yield "folder", lambda: main(["complete", photo, mask, "-n", "1", "-o", "new", "--bundle", bundle])
    yield "batch", lambda: main(["batch", str(Path(photo).parent), "--mask", mask, "-o", ".", "--bundle", bundle])
    yield "video", lambda: main(["video", clip, "new.mp4", "--mask", mask, "--bundle", bundle])
    yield "bundle", lambda: write_bundle(Path("new.bundle"), source.manifest, contents, {}, False)
    yield "checkpoint", lambda: save_weights(Path("new.safetensors"), model, config, 32, Progress(), {})

os.chdir(good)  # once where it works: everything is imported and read by then
for name, work in works():
    assert work() in (0, None), name
os.chdir(closed)
if os.geteuid() == 0:
    os.seteuid(65534)  # permissions do not bind root
for name, work in works():
    try:
        code = work()
    except (OSError, CheckpointError):
        code = 2
    assert code in (1, 2), (name, code)
assert os.listdir(".") == [], os.listdir(".")
"""


def test_20_read_only_folder(bundle_folder: Path, checkpoint: Path, tmp_path: Path) -> None:
    import numpy as np
    from PIL import Image

    from tests.attacks.faults import video

    for name in ("photos", "good", "closed"):
        (tmp_path / name).mkdir()
    Image.fromarray(PHOTO[:40, :48]).save(tmp_path / "photos/a.png")
    Image.fromarray(np.ascontiguousarray(MASK[:40, :48])).save(tmp_path / "mask.png")
    video(tmp_path / "clip.mp4", 2)
    (tmp_path / "closed").chmod(0o555)
    paths = [tmp_path / "photos/a.png", tmp_path / "mask.png", tmp_path / "clip.mp4", bundle_folder.resolve(), checkpoint.resolve(), tmp_path / "good", tmp_path / "closed"]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", READ_ONLY, *map(str, paths)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    (tmp_path / "closed").chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
