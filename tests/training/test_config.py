import dataclasses
import json
from pathlib import Path

import pytest

from picme_sdk.errors import BadConfig
from tests.conftest import ROOT
from training.checkpoint import load_weights
from training.config import RENAMED, DecodeMix, from_dict, load


def test_a_configuration_survives_json(tiny: Path) -> None:
    config = load(tiny)
    assert from_dict(json.loads(json.dumps(dataclasses.asdict(config))), "json") == config


def test_phases_follow_the_images_seen(tiny: Path) -> None:
    config = load(tiny.parent / "pets256.toml")
    first, second = config.phases[:2]
    assert config.phase_at(0)[0] == config.phase_at(first.images - 1)[0] == 0
    assert config.phase_at(first.images)[0] == 1
    assert config.phase_at(first.images + second.images)[1].size == 256
    assert config.phase_at(10**12)[1].size == 256


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[model]\nwidth = 3\n[[phases]]\nsize = 256\nimages = 1\nbatch = 1", "width.*expected keys among"),
        ("nonsense = 1\n[[phases]]\nsize = 256\nimages = 1\nbatch = 1", "nonsense"),
        ("[model]\nimage_size = 256", "no .*phases"),
        ("[[phases]]\nsize = 100\nimages = 1\nbatch = 1", "size 100"),
        ("min_crop = 0\n[[phases]]\nsize = 256\nimages = 1\nbatch = 1", "min_crop"),
        ("min_crop = 0.5\nnearest = 0.5\n[[phases]]\nsize = 256\nimages = 1\nbatch = 1", "nearest and min_crop"),
        ("[decode_mix]\nuniform = -1\n[[phases]]\nsize = 256\nimages = 1\nbatch = 1", "decode_mix"),
        ("phases = ", "expected a TOML file"),
        ('discriminator = "nobody"\n[[phases]]\nsize = 256\nimages = 1\nbatch = 1', "discriminator"),
        (
            'discriminator = "backbone"\n[model]\nimage_size = 40\npatch = 4\nwidths = [8]\nencoder_blocks = [1]\ndecoder_blocks = [1]\n'
            "[[phases]]\nsize = 40\nimages = 1\nbatch = 1",
            "size with discriminator",
        ),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "wrong.toml").write_text(text)
    with pytest.raises(BadConfig, match=says):
        load(tmp_path / "wrong.toml")


OLD = """
judge = "backbone"
judge_rate = 0.4
nearest = 0.6
recolour = true
[model]
context = 32
pixel_width = 8
[[phases]]
size = 256
images = 1
batch = 1
[losses]
visible_noise = 0.05
posterior = 0.1
hole = 3.0
choice = 1.0
visibility = 2.0
visible_unit = 0.4
gist = 0.2
slope = 0.5
balance = 1.5
means = 0.3
categorical = 0.2
even = 0.4
"""


def test_keys_of_earlier_versions_are_read_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "old.toml").write_text(OLD)
    config = load(tmp_path / "old.toml")
    assert (config.discriminator, config.discriminator_rate) == ("backbone", 0.4)
    assert (config.min_crop, config.photometric_jitter) == (0.6, True)
    assert (config.model.code, config.model.pixel_path_width) == (32, 8)
    weights = config.losses
    assert (weights.elbo_noise, weights.posterior_gradient, weights.hole_weight) == (0.05, 0.1, 3.0)
    assert (weights.best_sketch, weights.mean_spacing, weights.spacing_unit) == (1.0, 2.0, 0.4)
    assert (weights.sample_layout, weights.gradient_penalty, weights.win_handicap) == (0.2, 0.5, 1.5)
    assert config.decode_mix == DecodeMix(winner_mean=0.3, by_weight=0.2, uniform=0.4)
    (record,) = caplog.records
    assert all(f"{old} is {new}" in record.message for old, new in RENAMED.items())


def test_a_file_may_inherit_from_one_with_old_keys(tmp_path: Path) -> None:
    (tmp_path / "old.toml").write_text(OLD)
    (tmp_path / "new.toml").write_text('base = "old.toml"\nmin_crop = 0.8\n[decode_mix]\nuniform = 0.1')
    config = load(tmp_path / "new.toml")
    assert config.min_crop == 0.8
    assert config.decode_mix == DecodeMix(winner_mean=0.3, by_weight=0.2, uniform=0.1)


def test_the_weights_that_ship_load_although_their_keys_are_old(caplog: pytest.LogCaptureFixture) -> None:
    model, config, note = load_weights(ROOT / "training/weights/pets256.safetensors")
    assert "judge" in note["config"], "the file has the names of its time"
    assert (config.discriminator, config.min_crop, config.losses.win_handicap) == ("backbone", 0.6, 1.5)
    assert config.decode_mix == DecodeMix(winner_mean=0.3, by_weight=0.2, uniform=0.4)
    assert model.config.image_size == 256
    assert "judge is discriminator" in caplog.text


def test_configurations_that_ship_have_no_old_keys(caplog: pytest.LogCaptureFixture) -> None:
    for path in sorted((ROOT / "training" / "configs").glob("*.toml")):
        load(path)
    assert not caplog.records
