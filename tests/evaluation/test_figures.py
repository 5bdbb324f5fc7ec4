import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from evaluation import figures
from evaluation.figures import CELL, GAP, centred_hole, flat, grid, pair_distances, within_and_between
from tests.conftest import read_image


def draw(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["figures", *map(str, arguments), "--size", "32"])
    return figures.main()


def test_a_grid_shows_each_picture_in_its_place() -> None:
    rows = [[np.full((32, 32, 3), 10 * (3 * y + x), np.uint8) for x in range(3)] for y in range(2)]
    pixels = np.asarray(grid(rows, ["a", "b", "c"]))
    for y in range(2):
        for x in range(3):
            middle = pixels[24 + y * (CELL + GAP) + CELL // 2, GAP + x * (CELL + GAP) + CELL // 2]
            assert (middle == 10 * (3 * y + x)).all()
    assert len(np.asarray(grid(rows, ["a"], notes=["one", "two"]))) > len(pixels)


def test_within_and_between_are_means_over_pairs() -> None:
    place = np.array([0.0, 1.0, 10.0, 13.0])  # two rows of two samples
    distances = np.abs(place[:, None] - place[None])
    assert within_and_between(distances, 2) == pytest.approx(((1 + 3) / 2, (10 + 13 + 9 + 12) / 4))


def test_pixel_distances_are_means_inside_the_hole() -> None:
    pictures = torch.zeros(2, 3, 8, 8)
    hole = torch.zeros(8, 8, dtype=torch.bool)
    hole[:4] = True
    pictures[1, :, :2] = 0.5  # half of the hole
    pictures[1, :, 4:] = 1.0  # outside, does not count
    name, distances = pair_distances(None)
    assert name == "mean absolute difference in the hole"
    assert distances(pictures, hole) == pytest.approx(np.array([[0, 0.25], [0.25, 0]]))


@pytest.mark.parametrize("side", figures.SIDES)
def test_holes_have_the_side_that_the_axis_says(side: float) -> None:
    assert np.sqrt((centred_hole(256, side) > 0).mean()) == pytest.approx(side)


def test_without_scikit_learn_pca_is_drawn_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    random = np.random.default_rng(0)
    plane = random.normal(size=(50, 2)) * [5, 1]
    turned = plane @ np.linalg.qr(random.normal(size=(6, 6)))[0][:2]
    name, points = flat(turned, 0)
    assert name == "PCA"
    gaps = np.linalg.norm(turned[:, None] - turned[None], axis=-1)
    assert np.linalg.norm(points[:, None] - points[None], axis=-1) == pytest.approx(gaps)  # two dimensions lose nothing


def test_every_figure_is_drawn_by_one_command(
    bundle_folder: Path, faces: Path, lpips_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = ("--data", faces, "--methods")
    ours = f"ours={bundle_folder}"
    commands = {
        "comparison": (*common, f"{ours},telea", "--rows", 2, "--mask", "random"),
        "primitives": (*common, ours, "--count", 2, "--lpips", lpips_file),
        "latents": (*common, ours, "--points", 40),
        "hole-size": (*common, ours, "--count", 2, "--lpips", lpips_file),
    }
    for name, arguments in commands.items():
        out = tmp_path / f"{name}.png"
        assert draw(monkeypatch, name, *arguments, "--out", out) == 0
        picture = read_image(out)
        assert picture.mode == "RGB"
        assert len(np.unique(np.asarray(picture).reshape(-1, 3), axis=0)) > 20
    columns = 1 + 2 + 1 + 1  # input, two results of ours, Telea, truth
    assert read_image(tmp_path / "comparison.png").width == GAP + columns * (CELL + GAP)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_an_existing_figure_is_replaced_only_by_force(
    faces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a.png"
    out.write_bytes(b"mine")
    command = ("comparison", "--data", faces, "--methods", "telea", "--rows", 1, "--out", out)
    assert draw(monkeypatch, *command) == 2
    assert "--force" in capsys.readouterr().err
    assert out.read_bytes() == b"mine"
    assert draw(monkeypatch, *command, "--force") == 0
    assert read_image(out).width > CELL


@pytest.mark.parametrize(
    ("name", "says"), [("primitives", "a bundle"), ("latents", "a bundle"), ("hole-size", "--lpips FILE")]
)
def test_what_a_figure_needs_is_said(
    name: str, says: str, faces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    monkeypatch.delenv("PICME_LPIPS", raising=False)
    assert draw(monkeypatch, name, "--data", faces, "--methods", "telea", "--out", tmp_path / "a.png") == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "a.png").exists()
