"""Fixtures for all tests. Nothing outside the repository is needed; torch only where a test asks for a checkpoint or an export.

bundle_folder    the tiny bundle of tests/data, for everything that runs a model
exported_folder  what export/to_trt.py makes of the tiny configuration, engines included
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[1]
TINY_BUNDLE = ROOT / "tests" / "data" / "tiny"
TINY_FORMAT_1 = ROOT / "tests" / "data" / "tiny_format_1"  # as it was written before format 2


def read_image(path: Path) -> Image.Image:
    """A picture whose file is closed again."""
    with Image.open(path) as picture:
        picture.load()
        return picture


@pytest.fixture(scope="session")
def bundle_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tiny bundle, so that no test can change the committed one."""
    return Path(shutil.copytree(TINY_BUNDLE, tmp_path_factory.mktemp("bundle") / "tiny"))


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
    import torch

    from training.checkpoint import Progress, save_weights
    from training.config import load
    from training.model import Picme

    torch.set_num_threads(1)  # the tiny networks are faster with one
    torch.manual_seed(0)
    config = load(ROOT / "training" / "configs" / "tiny32.toml")
    model = Picme(config.model)
    with torch.no_grad():  # as after training: primitives of different weight
        model.mixture_head.alpha.bias.copy_(torch.tensor([1.0, 0.5, 0.0, -0.5]))
    path = tmp_path_factory.mktemp("checkpoint") / "tiny32.safetensors"
    save_weights(path, model, config, config.model.image_size, Progress(), {})
    return path


@pytest.fixture(scope="session")
def exported_folder(checkpoint: Path) -> Path:
    """The tiny model as the real command exports it: float32 and FP16 graphs, and RTX engines."""
    out = checkpoint.parent / "tiny32"
    command = [sys.executable, str(ROOT / "export/to_trt.py"), "--ckpt", str(checkpoint), "--out", str(out)]
    options = ["--builder", "rtx", "--licence", "CC0-1.0"]
    done = subprocess.run([*command, *options], cwd=checkpoint.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (checkpoint.parent / "printed.txt").write_text(done.stdout + done.stderr)
    return out
