import os
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from evaluation.lpips import Lpips, inside, load_lpips, whole
from picme_sdk.errors import BadArgument

WEIGHTS = os.environ.get("PICME_LPIPS")


def tensor(pixels: np.ndarray) -> Tensor:
    return torch.tensor(pixels.copy()).permute(2, 0, 1).float()[None] / 255


@pytest.mark.skipif(
    not WEIGHTS, reason="needs the LPIPS weights: set PICME_LPIPS to their file (docs/train/evaluation.md)"
)
def test_reproduces_the_check_values() -> None:
    network = load_lpips(Path(str(WEIGHTS)))
    i, j, c = np.mgrid[:64, :64, :3]
    a, b = (3 * i + 5 * j + 40 * c) % 256, (3 * i * (c + 1) + 5 * j + i * j // 16) % 256
    assert float(network(tensor(a), tensor(b))) == pytest.approx(0.33952, abs=2e-5)
    assert float(network(tensor(a), tensor(a[:, ::-1]))) == pytest.approx(0.39296, abs=2e-5)


def test_is_a_distance(lpips_file: Path) -> None:
    network = load_lpips(lpips_file)
    a, b = torch.rand(2, 1, 3, 48, 48, generator=torch.Generator().manual_seed(0))
    assert float(network(a, a)) == 0
    assert float(network(a, b)) > 0
    assert float(network(a, b)) == pytest.approx(float(network(b, a)))


def test_weights_of_a_saved_network_load_again(lpips_file: Path, tmp_path: Path) -> None:
    network = load_lpips(lpips_file)
    save_file(network.state_dict(), tmp_path / "again.safetensors")
    assert {"features.10.weight", "features.0.bias", "lin4"} <= network.state_dict().keys()
    a, b = torch.rand(2, 1, 3, 32, 32)
    assert float(load_lpips(tmp_path / "again.safetensors")(a, b)) == float(network(a, b))


def test_whole_and_inside_are_means_over_positions() -> None:
    layers = [torch.full((2, side, side), 0.1) for side in (7, 3, 1, 1, 1)]
    hole = torch.zeros(32, 32)
    hole[4:9, 20:30] = 1
    assert whole(layers).tolist() == pytest.approx([0.5, 0.5])
    assert inside(layers, hole).tolist() == pytest.approx([0.5, 0.5])


def test_inside_looks_at_the_hole_only() -> None:
    left = torch.zeros(1, 8, 8)
    left[:, :, :4] = 1
    hole = torch.zeros(32, 32)
    hole[:, :8] = 1
    assert float(inside([left], hole)) == pytest.approx(1)
    assert float(inside([left], hole.flip(1))) == pytest.approx(0)
    assert float(whole([left])) == pytest.approx(0.5)


def test_one_picture_is_compared_with_all(lpips_file: Path) -> None:
    network = load_lpips(lpips_file)
    seen = network.embed(torch.rand(3, 3, 32, 32))
    distances = whole(network.layers(seen, seen.pick([1])))
    assert distances.shape == (3,)
    assert float(distances[1]) == 0
    assert seen.features.shape == (3, 256)


@pytest.mark.parametrize("content", [b"", b"not weights at all"])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "weights.safetensors"
    path.write_bytes(content)
    with pytest.raises(BadArgument, match="lin0 to lin4"):
        load_lpips(path)
    with pytest.raises(BadArgument, match="lin0 to lin4"):
        load_lpips(tmp_path / "missing.safetensors")


def test_weights_without_heads_are_refused(tmp_path: Path) -> None:
    kept = {name: t for name, t in Lpips().state_dict().items() if not name.startswith("lin")}
    save_file(kept, tmp_path / "alexnet.safetensors")
    with pytest.raises(BadArgument, match="lin0 to lin4"):
        load_lpips(tmp_path / "alexnet.safetensors")
