from pathlib import Path

import pytest
import torch

from evaluation.inception import Inception, enlarge, load_inception
from picme_sdk.errors import BadArgument


def test_has_the_size_of_the_original() -> None:
    network = Inception().eval()
    assert (
        sum(p.numel() for p in network.parameters()) == 21_785_568
    )  # Inception v3 without auxiliary head and classifier
    assert network(torch.rand(1, 3, 32, 32)).shape == (1, 2048)


def test_enlarges_as_tensorflow_did() -> None:
    ramp = torch.tensor([[0.0, 1.0], [0.0, 1.0]])[None, None]
    assert enlarge(ramp, 4)[0, 0].tolist() == [[0.0, 0.5, 1.0, 1.0]] * 4  # no half-pixel centres
    assert enlarge(ramp.mT, 4)[0, 0, :, 0].tolist() == [0.0, 0.5, 1.0, 1.0]
    assert torch.equal(enlarge(ramp, 2), ramp)


def test_only_the_weights_that_define_fid_are_taken(tmp_path: Path) -> None:
    other = tmp_path / "pt_inception-2015-12-05-6726825d.pth"  # the right name does not help
    torch.save({"a": torch.zeros(1)}, other)
    with pytest.raises(BadArgument, match="only its features make a FID"):
        load_inception(other)
    with pytest.raises(BadArgument, match="check the path"):
        load_inception(tmp_path / "missing.pth")
