"""Fixtures for the evaluation's tests."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from evaluation.lpips import Lpips

torch.set_num_threads(1)  # the tiny networks are faster with one


@pytest.fixture(scope="session")
def lpips_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of the form that LPIPS takes, but random: distances that mean nothing and obey the same laws."""
    torch.manual_seed(0)
    network = Lpips()
    for number in range(5):
        getattr(network, f"lin{number}").uniform_(0, 1)
    path = tmp_path_factory.mktemp("weights") / "lpips.safetensors"
    save_file(network.state_dict(), path)
    return path
