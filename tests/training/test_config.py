import dataclasses
import json
from pathlib import Path

import pytest

from training.config import from_dict, load


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
        ("nearest = 0\n[[phases]]\nsize = 256\nimages = 1\nbatch = 1", "nearest"),
        ('judge = "nobody"\n[[phases]]\nsize = 256\nimages = 1\nbatch = 1', "judge"),
        (
            'judge = "backbone"\n[model]\nimage_size = 40\npatch = 4\nwidths = [8]\nencoder_blocks = [1]\ndecoder_blocks = [1]\n'
            "[[phases]]\nsize = 40\nimages = 1\nbatch = 1",
            "size with judge",
        ),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "wrong.toml").write_text(text)
    with pytest.raises(ValueError, match=says):
        load(tmp_path / "wrong.toml")
