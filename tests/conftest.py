"""Fixtures for all tests: small drawn pictures and the tiny configuration. Nothing outside the repository is needed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
torch.set_num_threads(1)  # the tiny networks are faster so


@pytest.fixture(scope="session")
def faces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 40 drawn faces, 32 pixels a side."""
    from training.drawn import write_faces

    folder = tmp_path_factory.mktemp("faces")
    write_faces(folder, 40, 32)
    return folder


@pytest.fixture(scope="session")
def tiny() -> Path:
    return ROOT / "training" / "configs" / "tiny32.toml"
