"""What the photo tools share, without a host; and the GIMP plug-in's calls on a stand-in for GIMP."""

import importlib.util
import io
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

import numpy as np
import pytest
from PIL import Image

from tests.conftest import read_image
from tests.vectors.make import photo as formula

FOLDER = Path(__file__).parents[2] / "integrations"
GIMP, KRITA = FOLDER / "gimp" / "picme", FOLDER / "krita" / "picme"


def load(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


bridge = load(KRITA / "bridge.py", "bridge")


@pytest.fixture
def with_picme(bundle_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICME_COMMAND", f"'{sys.executable}' -m picme_sdk.cli")
    monkeypatch.setenv("PICME_BUNDLE", str(bundle_folder))


def test_both_tools_carry_the_same_bridge() -> None:
    assert (GIMP / "bridge.py").read_bytes() == (KRITA / "bridge.py").read_bytes()


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (3, "RGB"), (4, "RGBA")])
def test_png(tmp_path: Path, channels: int, mode: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, channels), np.uint8)
    bridge.write_png(tmp_path / "a.png", 7, 5, channels, pixels.tobytes())
    read = read_image(tmp_path / "a.png")
    assert read.mode == mode
    assert np.array_equal(np.asarray(read).reshape(5, 7, channels), pixels)
    with pytest.raises(bridge.PicmeFailed, match="no picture of 7x6"):
        bridge.write_png(tmp_path / "b.png", 7, 6, channels, pixels.tobytes())


def test_channels_are_put_in_order() -> None:
    assert bridge.rgb(bytes([1, 2, 3, 0, 5, 6, 7, 8])) == bytes([1, 2, 3, 5, 6, 7])
    assert bridge.rgb(bytes([3, 2, 1, 0, 7, 6, 5, 8]), red=2) == bytes([1, 2, 3, 5, 6, 7])


def test_the_hole_is_whatever_is_selected_at_all() -> None:
    assert bridge.hard(bytes([0, 1, 128, 255])) == bytes([0, 255, 255, 255])


def test_command_line() -> None:
    line = bridge.command("a.png", "b.png", "out", 3, 7, {"PICME_COMMAND": "python3 -m picme", "PICME_BUNDLE": "B"})
    assert line[:6] == ["python3", "-m", "picme", "complete", "a.png", "b.png"]
    assert line[6:] == ["-n", "3", "-o", "out", "--strategy", "diverse", "--json", "--seed", "7", "--bundle", "B"]
    assert "--seed" not in bridge.command("a.png", "b.png", "out", environment={"PICME_COMMAND": "picme"})


def test_a_path_with_spaces_is_one_word(tmp_path: Path) -> None:
    program = tmp_path / "my picme"
    program.write_text("")
    assert bridge.picme({"PICME_COMMAND": str(program)}) == [str(program)]


def test_without_picme_it_says_how_to_get_it() -> None:
    with pytest.raises(bridge.PicmeFailed, match="pip install"):
        bridge.picme({"PATH": ""})


def test_reports_are_understood() -> None:
    row = {"primitive": 2, "weight": 0.314, "token": "t", "log_density": 1.0}
    made = bridge.parse("a warning\n" + json.dumps({"files": ["a.png"], "results": [row]}) + "\n")
    assert [(r.file, r.token, r.name) for r in made] == [("a.png", "t", "picme: idea 2 (31%)")]


@pytest.mark.parametrize("printed", ["", "hello", "{}", "[]", '{"files": ["a"], "results": [{}]}'])
def test_other_answers_are_refused(printed: str) -> None:
    with pytest.raises(bridge.PicmeFailed, match="something unexpected"):
        bridge.parse(printed)


@pytest.mark.usefixtures("with_picme")
def test_the_real_command_runs_in_a_clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHOME", "/nowhere")  # as a host with its own Python sets it
    pixels, hole = formula(40, 30), np.zeros((30, 40), np.uint8)
    hole[10:20, 10:20] = 255
    bridge.write_png(tmp_path / "layer.png", 40, 30, 3, pixels.tobytes())
    bridge.write_png(tmp_path / "mask.png", 40, 30, 1, hole.tobytes())
    made = bridge.complete(str(tmp_path), str(tmp_path / "layer.png"), str(tmp_path / "mask.png"), 2, 5)
    assert len(made) == 2
    result = np.asarray(read_image(Path(made[0].file)))
    assert np.array_equal(result[hole == 0], pixels[hole == 0])
    (tmp_path / "other").mkdir()
    empty = tmp_path / "empty.png"
    bridge.write_png(empty, 40, 30, 1, bytes(1200))
    with pytest.raises(bridge.PicmeFailed, match="an empty mask\nexpected some pixels"):
        bridge.complete(str(tmp_path / "other"), str(tmp_path / "layer.png"), str(empty))


def test_failures_become_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICME_COMMAND", str(tmp_path / "missing" / "picme"))
    with pytest.raises(bridge.PicmeFailed, match="could not be started"):
        bridge.complete(str(tmp_path), "a.png", "b.png")

    def too_long(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("picme", 1)

    monkeypatch.setattr(subprocess, "run", too_long)
    with pytest.raises(bridge.PicmeFailed, match="took longer"):
        bridge.complete(str(tmp_path), "a.png", "b.png")


class Drawable:
    """As much of a GIMP layer or selection as the plug-in asks for."""

    def __init__(self, pixels: np.ndarray, offsets: tuple[int, int] = (0, 0)) -> None:
        self.pixels, self.offsets, self.asked = pixels, offsets, []

    def get_width(self) -> int:
        return self.pixels.shape[1]

    def get_height(self) -> int:
        return self.pixels.shape[0]

    def get_offsets(self) -> tuple[bool, int, int]:
        return True, *self.offsets

    def get_parent(self) -> None:
        return None

    def get_buffer(self) -> "Drawable":
        return self

    def get(self, area: tuple[int, int, int, int], scale: float, form: str, abyss: object) -> bytes:
        left, top, width, height = area
        self.asked.append((area, form))
        return self.pixels[top : top + height, left : left + width].tobytes()


@pytest.fixture
def gimp(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    gi, repository = MagicMock(), MagicMock()
    repository.Gimp.PlugIn = object
    repository.Gegl.Rectangle.new = lambda *box: box
    repository.Gio.File.new_for_path = lambda path: path
    repository.Gimp.Selection.is_empty.return_value = False
    for name, module in (("gi", gi), ("gi.repository", repository), ("bridge", bridge)):
        monkeypatch.setitem(sys.modules, name, module)
    return load(GIMP / "picme.py", "picme_gimp")


@pytest.mark.usefixtures("with_picme")
def test_gimp_gets_layers_where_the_layer_is(gimp: ModuleType) -> None:
    pixels = np.dstack([formula(40, 30), np.full((30, 40), 255, np.uint8)])
    selection = np.zeros((50, 60), np.uint8)
    selection[20:30, 20:30] = 200
    layer, image, loaded = Drawable(pixels, (5, 8)), MagicMock(), []
    image.get_selection.return_value = Drawable(selection)

    def load_layer(mode: object, image: object, path: str) -> MagicMock:
        made = MagicMock()
        made.picture = Image.open(io.BytesIO(Path(path).read_bytes()))
        loaded.append(made)
        return made

    gimp.Gimp.file_load_layer = load_layer
    gimp.complete_selection(image, layer, 2)
    assert len(loaded) == 2
    changed = (np.asarray(loaded[0].picture) != pixels[..., :3]).any(-1)
    assert changed[12:22, 15:25].mean() > 0.9, "the selection, seen from the layer"
    changed[12:22, 15:25] = False
    assert not changed.any()
    assert [made.set_visible.call_args.args for made in loaded] == [(True,), (False,)]
    assert all(made.set_offsets.call_args.args == (5, 8) for made in loaded)
    assert all(made.add_mask.called for made in loaded)
    assert image.undo_group_start.call_count == image.undo_group_end.call_count == 1


def test_gimp_without_a_selection(gimp: ModuleType) -> None:
    image = MagicMock()
    image.get_selection.return_value = Drawable(np.zeros((30, 40), np.uint8))
    with pytest.raises(bridge.PicmeFailed, match="Select"):
        gimp.complete_selection(image, Drawable(np.zeros((30, 40, 4), np.uint8)), 2)
    assert not image.insert_layer.called
