import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from tests.conftest import ROOT
from training.config import load
from training.discriminator import PyramidJudge
from training.model import Picme, PicmeConfig, cost, grow, pull_push

CONFIGS = sorted((ROOT / "training" / "configs").glob("*.toml"))
SMALL = PicmeConfig(image_size=64, widths=(8, 12, 16), encoder_blocks=(1, 1, 1), decoder_blocks=(1, 1, 1), context=16, latent=8, primitives=3)  # fmt: skip


def scene(size: int, batch: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(size)
    mask = torch.zeros(batch, 1, size, size)
    mask[:, :, size // 4 : size // 2, size // 4 : size // 2] = 1
    return (torch.rand(batch, 3, size, size, generator=generator) * 2 - 1) * (1 - mask), mask


def test_shapes_of_the_three_graphs() -> None:
    model = Picme(SMALL)
    encoded = model.encode(*scene(64))
    assert encoded.context.shape == (2, 16)
    assert [tuple(s.shape) for s in encoded.skips] == [(2, 16, 4, 4), (2, 12, 8, 8), (2, 8, 16, 16)]
    mixture = model.mixture(encoded.context)
    assert mixture.means.shape == mixture.log_scales.shape == (2, 3, 8)
    torch.testing.assert_close(mixture.log_weights.exp().sum(1), torch.ones(2))
    assert model.decode(encoded.skips, torch.zeros(2, 8)).shape == (2, 3, 64, 64)


def test_skips_of_batch_one_broadcast_against_many_latents() -> None:
    model = Picme(SMALL).eval()
    encoded = model.encode(*scene(64, 1))
    z = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    together = model.decode(encoded.skips, z)
    apart = torch.cat([model.decode(encoded.skips, row[None]) for row in z])
    torch.testing.assert_close(together, apart, rtol=1e-4, atol=1e-5)


def test_one_picture_does_not_depend_on_its_batch() -> None:
    model = Picme(SMALL).train()
    image, mask = scene(64, 3)
    together = model.encode(image, mask).context[:1]
    torch.testing.assert_close(together, model.encode(image[:1], mask[:1]).context, rtol=1e-4, atol=1e-5)


def test_decoded_picture_depends_on_latent_and_on_photo() -> None:
    model = Picme(SMALL).eval()
    image, mask = scene(64)
    skips = model.encode(image, mask).skips
    plain = model.decode(skips, torch.zeros(2, 8))
    assert (plain - model.decode(skips, torch.ones(2, 8))).abs().mean() > 1e-3
    assert (plain[0] - plain[1]).abs().mean() > 1e-3


def test_growing_changes_nothing_at_first() -> None:
    image, mask = scene(64)
    small, large = Picme(SMALL.at(32)).eval(), Picme(SMALL).eval()
    grow(small, large)
    z = torch.ones(2, 8)
    coarse = small.decode(small.encode(F.avg_pool2d(image, 2), F.avg_pool2d(mask, 2)).skips, z)
    fine = large.decode(large.encode(image, mask).skips, z)
    torch.testing.assert_close(fine, F.interpolate(coarse, scale_factor=2.0))
    fine.square().mean().backward()
    assert large.decoder.heads["16"].weight.grad.abs().sum() > 0, "the new head can learn"


RICH = PicmeConfig(image_size=64, widths=(8, 12, 16), encoder_blocks=(1, 1, 1), decoder_blocks=(1, 1, 1), context=16, latent=8, primitives=3, attention=8, pixel_width=12)  # fmt: skip


def test_attention_and_pixel_path_change_nothing_at_first() -> None:
    plain, rich = Picme(SMALL).eval(), Picme(RICH).eval()
    rich.load_state_dict(plain.state_dict(), strict=False)
    image, mask = scene(64)
    z = torch.ones(2, 8)
    expected = plain.decode(plain.encode(image, mask).skips, z)
    torch.testing.assert_close(rich.decode(rich.encode(image, mask).skips, z), expected)


def test_a_cell_attends_to_the_whole_picture() -> None:
    model = Picme(RICH).eval()
    torch.nn.init.normal_(model.encoder.stages["8"][-1].answer.weight)
    image, mask = scene(64, 1)
    moved = image.clone()
    moved[..., :4, :4] = 1  # a corner; the opposite one is beyond the reach of the convolutions at this grid
    features, others = (model.encoder(torch.cat([x, mask], 1))[1] for x in (image, moved))
    assert (features - others)[..., -1, -1].abs().max() > 1e-6


def test_the_pixel_path_is_there_at_the_full_size_only() -> None:
    assert RICH.at(32).pixel_width == 0
    assert RICH.at(32).attention == 8
    assert RICH.at(16).attention == 0
    assert Picme(RICH.at(32)).pixel_path is None
    image, mask = scene(64)
    assert Picme(RICH).encode(image, mask).skips[-1].shape == (2, 48, 16, 16)


def test_holes_are_filled_from_their_surroundings() -> None:
    """A picture that is red on the left and blue on the right, with a hole over each half's middle."""
    colours = torch.zeros(1, 3, 16, 16)
    colours[:, 0, :, :8], colours[:, 2, :, 8:] = 1, 1
    seen = torch.ones(1, 1, 16, 16)
    seen[..., 4:12, 2:6] = seen[..., 4:12, 10:14] = 0
    filled = pull_push(colours * seen, seen)
    assert (filled[0, 0, 6:10, 3:5] > 0.8).all()
    assert (filled[0, 2, 6:10, 11:13] > 0.8).all()
    torch.testing.assert_close(filled * seen, colours * seen, atol=0.06, rtol=0)
    assert torch.isfinite(pull_push(colours * 0, seen * 0)).all()


def test_a_standardised_code_differs_between_pictures_and_changes_nothing_else() -> None:
    torch.manual_seed(0)
    model = Picme(SMALL).eval()
    torch.nn.init.normal_(model.context_to_skip.weight)
    image, mask = scene(64, 24)
    image = image * torch.linspace(0.2, 1, 24)[:, None, None, None]
    model.context_head.out.bias.data[16:] = 3  # mostly noise
    before, visible = model.encode(image, mask), model.visible_decoder(model.encode(image, mask).context)
    mixture = model.mixture(before.context)
    model.standardise_code(image, mask)
    after, _ = model.visible(image, mask)
    torch.testing.assert_close(after.mean.mean(0), torch.zeros(16), atol=1e-3, rtol=0)
    torch.testing.assert_close(after.mean.std(0), torch.ones(16), atol=1e-2, rtol=0)
    assert after.log_scale.exp().max() < 0.1
    torch.testing.assert_close(model.mixture(after.mean), mixture, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(model.encode(image, mask).skips[0], before.skips[0], atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(model.visible_decoder(after.mean), visible, atol=1e-3, rtol=1e-3)


def test_a_sketch_is_what_the_coarsest_stage_paints() -> None:
    model = Picme(SMALL).eval()
    skips = model.encode(*scene(64)).skips
    z = torch.ones(2, 8)
    coarse = Picme(SMALL.at(16)).eval()
    coarse.load_state_dict(model.state_dict(), strict=False)
    torch.testing.assert_close(model.decoder.sketch(skips, z), coarse.decode(skips[:1], z))


def test_a_grown_discriminator_judges_as_before() -> None:
    small, large = PyramidJudge(64), PyramidJudge(128)
    grow(small, large)
    for grid in ("8", "32"):
        assert torch.equal(small.scores[grid].weight, large.scores[grid].weight)
    picture, mask = scene(128)
    half = torch.nn.functional.avg_pool2d
    torch.testing.assert_close(large([picture], mask)[0], small([half(picture, 2)], half(mask, 2))[0])


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_shipped_configurations_load(path: Path) -> None:
    config = load(path)
    assert config.name == path.stem
    assert config.phases[-1].size == config.model.image_size


def test_pets256_is_within_its_budget() -> None:
    numbers = cost(load(ROOT / "training/configs/pets256.toml").model)
    assert numbers["encoder_gflop"] + numbers["mixture_gflop"] <= 1.8
    assert numbers["decoder_gflop"] <= 0.75
    assert numbers["parameters_m"] <= 10


def test_photos256_is_within_its_budget() -> None:
    numbers = cost(load(ROOT / "training/configs/photos256.toml").model)
    assert numbers["encoder_gflop"] + numbers["mixture_gflop"] + 6 * numbers["decoder_gflop"] <= 5.4
    assert numbers["parameters_m"] <= 6.5


def test_paper256_has_no_departure_switched_on() -> None:
    weights = load(ROOT / "training/configs/paper256.toml").losses
    departures = "winner", "features", "gist", "balance", "warm_share", "means", "categorical", "even"
    assert [getattr(weights, name) for name in departures] == [0] * len(departures)
    assert (weights.hole, weights.adversarial, weights.reconstruction) == (1, 0.05, 1)


def test_pic256_differs_from_pets256_in_the_number_of_primitives_only() -> None:
    pets, pic = (load(ROOT / f"training/configs/{name}.toml") for name in ("pets256", "pic256"))
    assert pic.model.primitives == 1
    assert pets.losses == pic.losses
    assert pets.phases == pic.phases


def test_cost_command_prints_one_line_of_json(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "training.model", "--config", str(ROOT / "training/configs/tiny32.toml"), "--json"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert set(json.loads(printed)) == {"parameters_m", "encoder_gflop", "mixture_gflop", "decoder_gflop", "image_size"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"image_size": 100}, "multiple of"),
        ({"widths": (8, 8)}, "one of each per stage"),
        ({"attention": 5}, "attention on a grid"),
    ],
)
def test_impossible_architectures_are_refused(change: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        PicmeConfig(**change)


def test_impossible_size_is_refused() -> None:
    with pytest.raises(ValueError, match="halved"):
        PicmeConfig().at(96)
