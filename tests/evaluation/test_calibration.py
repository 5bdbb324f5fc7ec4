import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from evaluation import calibration
from evaluation.calibration import FEATURES, SIX, UNCLEAR, expected_modes, frequencies, measure, total_variation
from evaluation.faces import SMILE, face


def drawn(seed: int) -> tuple[int, int]:
    """Eye colour and mouth of a face, from the same random numbers in the same order."""
    random = np.random.default_rng(seed)
    random.integers(60, 256, 3)
    random.integers(4)
    return int(random.integers(3)), 0 if random.uniform() < SMILE else 1


@pytest.mark.parametrize("size", [32, 64, 128])
def test_hidden_features_are_read_without_error(size: int) -> None:
    for seed in range(60):
        picture = np.asarray(face(seed, size))
        eyes, mouth = drawn(seed)
        assert FEATURES["mouth"].read(picture) == mouth
        assert FEATURES["eyes"].read(picture) == eyes
        assert FEATURES["left eye"].read(picture) == eyes
        assert FEATURES["left eye"].odds(picture)[eyes] == 1


@pytest.mark.parametrize("name", FEATURES)
def test_what_is_not_there_is_unclear(name: str) -> None:
    picture = np.array(face(1, 64))
    skin = picture[34, 32].copy()
    picture[FEATURES[name].mask(64) > 0] = skin
    assert FEATURES[name].read(picture) == UNCLEAR


def test_a_mouth_between_smile_and_frown_is_unclear() -> None:
    smile = next(s for s in range(100) if drawn(s)[1] == 0)
    picture = np.asarray(face(smile, 64))
    both = (picture.astype(float) + np.roll(picture, -3, 0)) / 2  # the stroke at both heights
    hole = FEATURES["mouth"].mask(64)[..., None] > 0
    assert FEATURES["mouth"].read(np.where(hole, both, picture).astype(np.uint8)) == UNCLEAR


def test_masks_hide_the_feature_wholly() -> None:
    for seed in range(20):
        picture = np.asarray(face(seed, 64)).astype(float)
        y, x = (np.mgrid[:64, :64] + 0.5) / 64
        inner = ((x - 0.5) / 0.38) ** 2 + ((y - 0.5) / 0.42) ** 2 < 1  # the face without its edge
        skin = picture[34, 32]
        for hidden, others in (("mouth", "eyes"), ("eyes", "mouth")):
            seen = inner & (FEATURES[hidden].mask(64) == 0) & (FEATURES[others].mask(64) == 0)
            assert np.abs(picture[seen] - skin).max() <= 1


def test_total_variation_counts_unclear_results_as_wrong() -> None:
    assert total_variation(np.array([0.7, 0.3]), np.array([0.7, 0.3])) == pytest.approx(0)
    assert total_variation(np.array([1.0, 0.0]), np.array([0.7, 0.3])) == pytest.approx(0.3)
    assert total_variation(np.array([0.7, 0.0]), np.array([0.7, 0.3])) == pytest.approx(0.3)
    assert total_variation(np.zeros(2), np.array([0.7, 0.3])) == pytest.approx(1)


def test_frequencies_leave_unclear_results_out() -> None:
    assert frequencies([0, 1, 1, UNCLEAR], [0.4, 0.3, 0.2, 0.1], 2).tolist() == pytest.approx([0.4, 0.5])


def test_expected_modes_are_known() -> None:
    assert expected_modes(np.array([1.0, 0.0, 0.0])) == 1
    assert expected_modes(np.full(3, 1 / 3)) == pytest.approx(3 * (1 - (2 / 3) ** SIX))
    assert expected_modes(np.array([0.7, 0.3]), 1) == pytest.approx(1)


class Oracle:
    """A completer whose samples are whole faces: any of them (`faces` is None), or always the same ones."""

    manifest = SimpleNamespace(image_size=32)

    def __init__(self, faces: list[int] | None = None) -> None:
        self.faces = faces
        self.primitives = [(0, 0.7), (1, 0.3)]

    def encode(self, photo: np.ndarray, mask: np.ndarray) -> "Oracle":
        return self

    def sample(
        self, n: int, seed: int, strategy: str = "diverse", primitive: int | None = None, temperature: float = 1.0
    ) -> list[Any]:
        assert primitive is not None or strategy == "categorical", (
            "odds are those of samples, not of a tour of all ideas"
        )
        if primitive is not None:  # the first smiles, the second frowns
            chosen = [next(s for s in range(100) if drawn(s)[1] == primitive)]
        elif self.faces is None:
            chosen = list(np.random.default_rng(seed).integers(1 << 30, size=n))
        else:
            chosen = (self.faces * n)[:n]
        return [SimpleNamespace(image=np.asarray(face(int(s), 32))) for s in chosen]


def test_a_perfect_sampler_is_found_calibrated() -> None:
    found = measure(Oracle(), FEATURES["mouth"], 40, 12, 0)  # type: ignore[arg-type]
    assert found["true"] == pytest.approx([SMILE, 1 - SMILE])
    assert found["unclear"] == pytest.approx(0)
    assert found["distance_sampled"] < 0.08
    assert found["distance_weights"] == pytest.approx(0)  # 0.7 on the smile, 0.3 on the frown
    assert found["distance_weights_a_face"]["value"] == pytest.approx(0)
    perfect = found["distance_of_perfect_samples_a_face"]["value"]
    assert found["distance_sampled_a_face"]["value"] == pytest.approx(perfect, abs=0.04)
    assert found["modes_of_six"]["value"] == pytest.approx(found["modes_of_six_perfect"], abs=0.15)


def test_a_collapsed_sampler_is_found_out() -> None:
    brown = next(s for s in range(100) if drawn(s)[0] == 2)
    found = measure(Oracle([brown]), FEATURES["eyes"], 10, 6, 0)  # type: ignore[arg-type]
    assert found["sampled"] == pytest.approx([0, 0, 1])
    assert found["distance_sampled"] == pytest.approx(2 / 3)
    assert found["distance_sampled_a_face"]["value"] == pytest.approx(2 / 3)
    assert found["modes_of_six"]["value"] == 1


def test_a_sampler_that_ignores_the_visible_eye_is_found_out_face_by_face() -> None:
    found = measure(Oracle(), FEATURES["left eye"], 60, 12, 0)  # type: ignore[arg-type]
    assert found["distance_sampled_a_face"]["value"] == pytest.approx(2 / 3, abs=0.06)
    assert found["modes_of_six_perfect"] == pytest.approx(1)
    assert found["modes_of_six"]["value"] > 2


def test_the_command_writes_tables(
    bundle_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = [
        "calibration",
        "--bundles",
        f"ours={bundle_folder}",
        "--out",
        str(out),
        "--count",
        "2",
        "--samples",
        "6",
    ]
    monkeypatch.setattr(sys, "argv", arguments)
    assert calibration.main() == 0
    report = json.loads((out / "calibration.json").read_text())
    assert set(report["features"]) == set(FEATURES)
    assert "answers among 6 samples" in (out / "calibration.md").read_text()
    capsys.readouterr()
    assert calibration.main() == 2
    assert "exists | expected" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["calibration", "--bundles", "telea", "--out", str(tmp_path / "other")])
    assert calibration.main() == 2
    assert not (tmp_path / "other").exists()
