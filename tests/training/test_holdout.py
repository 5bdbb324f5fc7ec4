"""The lists of pictures to train on and to keep out of training."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from picme_sdk.errors import DataError
from tests.conftest import ROOT
from training import holdout


def files(*names: str) -> list[Path]:
    return [Path(name) for name in names]


def test_crops_of_one_photograph_go_the_same_way() -> None:
    crops = files(*(f"taco_{i:010x}_{crop}.jpg" for i in range(40) for crop in range(3)))
    lists = holdout.split(crops, {"choose": 10, "report": 10})
    groups = {name: {holdout.photograph(file) for file in chosen} for name, chosen in lists.items()}
    assert not groups["choose"] & groups["report"] | groups["train"] & (groups["choose"] | groups["report"])
    assert len(lists["choose"]) == len(lists["report"]) == 10, "the first crop of each only"
    assert len(lists["train"]) == 60


def test_the_rule_depends_on_names_only_and_not_on_the_folder() -> None:
    names = [f"{i:012d}.jpg" for i in range(50)]
    here = holdout.split(files(*names), {"choose": 5})
    there = holdout.split(files(*(f"elsewhere/{name}" for name in reversed(names))), {"choose": 5})
    assert [file.name for file in here["choose"]] == [file.name for file in there["choose"]]
    more = holdout.split(files(*names, "000000000099.jpg"), {"choose": 5})
    assert len(set(more["choose"]) & set(here["choose"])) >= 4


def test_too_few_photographs_are_refused() -> None:
    with pytest.raises(DataError, match=r"5 photographs .* expected more than"):
        holdout.split(files(*(f"{i}.jpg" for i in range(5))), {"choose": 5})


def test_pictures_that_documents_show_are_left_out(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for folder in ("scenes", "shown"):
        (tmp_path / folder).mkdir()
    for i in range(4):
        small = Image.fromarray(random.integers(0, 256, (6, 7, 3), np.uint8))
        small.resize((256, 256), Image.Resampling.BICUBIC).save(tmp_path / "scenes" / f"{i}.png")
    with Image.open(tmp_path / "scenes" / "2.png") as picture:
        picture.resize((640, 500)).save(tmp_path / "shown" / "demo.jpg", quality=60)
    found = sorted((tmp_path / "scenes").iterdir())
    (tmp_path / "scenes" / "broken.png").write_bytes(b"nothing")
    kept = holdout.without([*found, tmp_path / "scenes" / "broken.png"], [tmp_path / "shown" / "demo.jpg"])
    assert [file.name for file in kept] == ["0.png", "1.png", "3.png", "broken.png"]


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "few").mkdir()
    Image.new("RGB", (40, 40)).save(tmp_path / "few" / "a.png")
    command = [
        sys.executable,
        str(ROOT / "training/holdout.py"),
        "--scenes",
        "few",
        "--photos",
        "few",
        "--out",
        "lists",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "1 photographs | expected more than the 1400" in done.stderr
