"""Fixtures for all tests: small drawn pictures and the tiny configuration. Nothing outside the repository is needed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

ROOT = Path(__file__).parents[1]
torch.set_num_threads(1)  # the tiny networks are faster so


def read_image(path: Path) -> Image.Image:
    """A picture whose file is closed again."""
    with Image.open(path) as picture:
        picture.load()
        return picture


@pytest.fixture(scope="session")
def faces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 40 drawn faces, 32 pixels a side."""
    from evaluation.faces import write_faces

    folder = tmp_path_factory.mktemp("faces")
    write_faces(folder, 40, 32)
    return folder


@pytest.fixture(scope="session")
def tiny() -> Path:
    return ROOT / "training" / "configs" / "tiny32.toml"


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of the tiny model as training writes them, untrained but for a fixed seed."""
    from training.checkpoint import Progress, save_weights
    from training.config import load
    from training.model import Picme

    torch.manual_seed(0)
    config = load(ROOT / "training" / "configs" / "tiny32.toml")
    model = Picme(config.model)
    with torch.no_grad():  # as after training: primitives of different weight
        model.mixture_head.alpha.bias.copy_(torch.tensor([1.0, 0.5, 0.0, -0.5]))
    path = tmp_path_factory.mktemp("checkpoint") / "tiny32.safetensors"
    save_weights(path, model, config, config.model.image_size, Progress(), {})
    return path


@pytest.fixture(scope="session")
def bundle_folder(checkpoint: Path) -> Path:
    """The tiny bundle: float32 and FP16 graphs, and RTX engines (made by the real command)."""
    import subprocess
    import sys

    out = checkpoint.parent / "tiny32"
    command = [
        sys.executable,
        str(ROOT / "export/to_trt.py"),
        "--ckpt",
        str(checkpoint),
        "--out",
        str(out),
        "--builder",
        "rtx",
    ]
    done = subprocess.run([*command, "--licence", "CC0-1.0"], cwd=checkpoint.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (checkpoint.parent / "printed.txt").write_text(done.stdout + done.stderr)
    return out
