from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from evaluation.cases import Case, Cases
from evaluation.methods import Method, bundles, parse_methods
from picme_sdk.completer import Completer
from picme_sdk.errors import BadArgument


@pytest.fixture
def case(faces: Path) -> Case:
    return next(Cases(faces, 32, 1, seed=5).of("center"))


@pytest.mark.parametrize("name", ["telea", "navier-stokes"])
def test_classical_methods_continue_a_flat_picture(name: str, case: Case) -> None:
    flat = Case("flat.png", "center", np.full((32, 32, 3), 90, np.uint8), case.mask, 0)
    [method] = parse_methods(name)
    results = method.results(flat, 6)
    assert len(results) == 1
    assert np.abs(results.astype(int) - 90).max() <= 3  # Telea's rounding adds up
    hidden = np.where(case.mask[..., None] > 0, 255, case.photo).astype(np.uint8)
    seen = method.results(Case("a.png", "center", hidden, case.mask, 0), 6)
    assert np.array_equal(seen, method.results(case, 6)), "it must not look into the hole"


def test_bundles_are_sampled_by_the_papers_algorithm(bundle_folder: Path, case: Case) -> None:
    [method] = parse_methods(f"ours={bundle_folder}")
    with Completer(bundle_folder, device="cpu") as completer:
        expected = [r.image for r in completer.complete(case.photo, case.mask, 3, case.seed, "categorical")]
    assert np.array_equal(method.results(case, 3), np.stack(expected))
    assert method.about["primitives"] == 4
    assert method.about["image_size"] == 32


def test_what_is_outside_the_hole_is_the_photo_s(case: Case) -> None:
    [result] = Method("white", {}, lambda case, n: [np.full_like(case.photo, 255)]).results(case, 1)
    assert (result[case.mask > 0] == 255).all()
    assert np.array_equal(result[case.mask == 0], case.photo[case.mask == 0])


def test_a_folder_of_results_takes_part(case: Case, tmp_path: Path) -> None:
    (tmp_path / "center").mkdir()
    for number, grey in ((1, 10), (2, 20)):
        Image.new("RGB", (32, 32), (grey,) * 3).save(tmp_path / "center" / f"{case.name}-{number}.png")
    [method] = parse_methods(f"other={tmp_path}")
    assert [int(r[16, 16, 0]) for r in method.results(case, 6)] == [10, 20]
    (tmp_path / "center" / f"{case.name}-1.png").unlink()
    with pytest.raises(BadArgument, match=r"-1\.png"):
        method.results(case, 6)


def test_a_callable_takes_part(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_method.py").write_text(
        "def fill(photo, mask, n, seed):\n    return [photo * 0 + i + seed % 7 for i in range(n)]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    [method] = parse_methods("mine=my_method:fill")
    assert [int(r[16, 16, 0]) for r in method.results(case, 3)] == [case.seed % 7 + i for i in range(3)]


@pytest.mark.parametrize("pictures", [[], [np.zeros((8, 8, 3), np.uint8)], [np.zeros((32, 32, 3))], [[1, 2]]])
def test_results_of_another_form_are_refused(case: Case, pictures: list) -> None:
    with pytest.raises(BadArgument, match="correct the method"):
        Method("bad", {}, lambda case, n: pictures).results(case, 1)


@pytest.mark.parametrize(
    "text",
    ["", "telea,telea", "nothing", "a=/no/such/folder", "=x", "a/b=.", "m=no_such_module_x:f", "m=json:nothing", "inputs=."],
)  # fmt: skip
def test_unusable_methods_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(BadArgument) as caught:
        parse_methods(text)
    assert str(caught.value).count(" | ") == 2
    assert "\n" not in str(caught.value)


def test_only_bundles_where_a_mixture_is_needed() -> None:
    with pytest.raises(BadArgument, match="a bundle"):
        bundles("telea")
