"""Attack 22: the trainer. Allowed: a run, or one line and exit code 2; a run that was killed goes on."""

from __future__ import annotations

import gc
import json
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from picme_sdk.errors import CheckpointError, DataError
from tests.attacks.test_export import ENVIRONMENT, run
from tests.conftest import ROOT
from training.checkpoint import load_weights
from training.config import load
from training.data import Pictures
from training.masks import MaskSource

CONFIGS: dict[str, str] = {
    "no phases": "[model]\nimage_size = 32",
    "phases that are a number": "phases = 5",
    "a phase without a batch": "[[phases]]\nsize = 32\nimages = 1",
    "a batch of none": "[[phases]]\nsize = 32\nimages = 1\nbatch = 0",
    "a negative batch": "[[phases]]\nsize = 32\nimages = 1\nbatch = -4",
    "a batch that is a text": "[[phases]]\nsize = 32\nimages = 1\nbatch = '8'",
    "a size of none": "[[phases]]\nsize = 0\nimages = 1\nbatch = 8",
    "a learning rate of NaN": "[[phases]]\nsize = 32\nimages = 1\nbatch = 8\nlearning_rate = nan",
    "a learning rate below zero": "[[phases]]\nsize = 32\nimages = 1\nbatch = 8\nlearning_rate = -1.0",
    "a patch of none": "[model]\npatch = 0\n[[phases]]\nsize = 32\nimages = 1\nbatch = 8",
    "widths that are a text": "[model]\nwidths = 'wide'\n[[phases]]\nsize = 32\nimages = 1\nbatch = 8",
    "a billion blocks": "[model]\nimage_size = 32\nwidths = [8]\nencoder_blocks = [1000000000]\ndecoder_blocks = [1]\n[[phases]]\nsize = 32\nimages = 1\nbatch = 8",
    "one beta": "betas = [0.5]\n[[phases]]\nsize = 32\nimages = 1\nbatch = 8",
    "its own base": "base = 'x.toml'",
    "a base that is a number": "base = 5",
    "a base that is not there": "base = 'y.toml'",
    "unknown keys": "colour = 1\n[[phases]]\nsize = 32\nimages = 1\nbatch = 8",
    "no TOML": "}{",
    "a model that is a number": "model = 5\n[[phases]]\nsize = 32\nimages = 1\nbatch = 8",
}  # fmt: skip


@pytest.mark.parametrize("kind", CONFIGS)
def test_22_impossible_configurations(tmp_path: Path, kind: str) -> None:
    (tmp_path / "x.toml").write_text(CONFIGS[kind])
    with pytest.raises((ValueError, OSError)) as caught:
        load(tmp_path / "x.toml")
    assert len(str(caught.value).splitlines()) == 1 or kind == "no TOML"


def test_22_a_configuration_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="utf-8"):
        load(tmp_path / "x.toml")


def train(
    tiny: Path, data: Path, out: Path, *more: Any, before: Callable[[], object] | None = None
) -> subprocess.CompletedProcess[bytes]:
    return run(
        "training/train.py", "--config", tiny, "--data", data, "--out", out, *more, cwd=out.parent, before=before
    )


@pytest.mark.parametrize(
    "more", [["--log-steps", "0"], ["--minutes", "nan"], ["--minutes", "inf"], ["--save-minutes", "-1"]]
)
def test_22_impossible_arguments(
    monkeypatch: pytest.MonkeyPatch, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    from training.train import arguments

    monkeypatch.setattr(sys, "argv", ["train.py", "--config", "x", "--data", "x", "--out", "x", *more])
    with pytest.raises(SystemExit) as caught:
        arguments()
    assert caught.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].count(" | ") == 2


def test_22_one_image_a_corrupt_one_and_a_hostile_one(
    tmp_path: Path, tiny: Path, faces: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Bad files among the good are skipped and named, whatever Pillow would make of them; an EPS file starts no Ghostscript."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 64 64\n%%EndComments\nshowpage\n")
    good = next(iter(sorted(faces.iterdir())))
    shutil.copy(good, folder / "c.png")
    (folder / "b.png").write_bytes(good.read_bytes()[:100])
    (folder / "loop.png").symlink_to(folder / "loop.png")
    (folder / "empty.jpg").touch()
    from training.data import find_images

    pictures = Pictures(find_images(folder), 32)
    started = []
    sys.addaudithook(lambda event, arguments: started.append(event) if event == "subprocess.Popen" else None)
    for index in range(len(pictures)):
        assert pictures[index][1].name == "c.png"
    assert not started
    assert {record.args[0].name for record in caplog.records} == {"a.png", "b.png", "empty.jpg"}  # type: ignore[index, union-attr]
    done = train(tiny, folder, tmp_path / "run", "--steps", 1)  # a batch of eight from one picture
    assert done.returncode == 0, done.stderr
    load_weights(tmp_path / "run/last.safetensors")


def test_22_nothing_to_train_on(tmp_path: Path) -> None:
    from training.data import find_images

    (tmp_path / "x.txt").write_bytes(b"\n# only a comment\n")
    for where in (tmp_path, tmp_path / "x.txt", tmp_path / "missing"):
        with pytest.raises(DataError):
            find_images(where)
    (tmp_path / "x.png").write_bytes(b"x")
    with pytest.raises(DataError):
        Pictures([tmp_path / "x.png"], 32)[0]


def test_22_a_corrupt_mask(tmp_path: Path, tiny: Path) -> None:
    from dataclasses import replace

    from picme_sdk.errors import BadImage

    (tmp_path / "m.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    source = MaskSource(replace(load(tiny).masks, folder=1e9), 32, [tmp_path / "m.png"])
    with pytest.raises(BadImage, match=r"m\.png"):
        source.draw(np.random.default_rng(0))


@pytest.fixture(scope="module")
def short(tiny: Path, faces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four steps without a break."""
    out = tmp_path_factory.mktemp("short") / "run"
    done = train(tiny, faces, out, "--steps", 4, "--log-steps", 1)
    assert done.returncode == 0, done.stderr
    return out


def test_22_disk_full_at_a_checkpoint(short: Path, tiny: Path, faces: Path, tmp_path: Path) -> None:
    """One line; the checkpoint before it is as it was, and the run can go on."""
    out = Path(shutil.copytree(short, tmp_path / "run"))
    before = {path.name: path.read_bytes() for path in out.glob("*.safetensors")}
    done = train(
        tiny,
        faces,
        out,
        "--resume",
        "--steps",
        5,
        before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
    )
    assert done.returncode == 2, done.stderr
    assert b"Traceback" not in done.stderr
    assert b"File too large" in done.stderr.strip().splitlines()[-1]
    assert {path.name: path.read_bytes() for path in out.glob("*.safetensors")} == before
    assert not [path for path in out.iterdir() if path.name.startswith(".") and path.name != ".lock"]


def test_22_killed_in_the_middle_of_a_line(short: Path, tiny: Path, faces: Path, tmp_path: Path) -> None:
    """A kill may cut the last line of the metrics: --resume drops it, and makes those steps again with the same losses."""
    out = Path(shutil.copytree(short, tmp_path / "run"))
    lines = (out / "metrics.jsonl").read_text().splitlines()
    (out / "metrics.jsonl").write_text("\n".join([*lines, '{"images": 99999, "step": 99}', '{"images": 4', "\0\0"]))
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "training/train.py"), "--config", str(tiny), "--data", str(faces), "--out", str(out), "--resume", "--log-steps", "1"],
        env=ENVIRONMENT, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until = time.monotonic() + 120
        while len((out / "metrics.jsonl").read_text().splitlines()) < len(lines) + 3:
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    first = [json.loads(line) for line in lines if "total" in line]
    (out / "metrics.jsonl").write_text((out / "metrics.jsonl").read_text() + '{"im')
    done = train(tiny, faces, out, "--resume", "--steps", 6, "--log-steps", 1)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    losses = {line["step"]: line["total"] for line in found if "total" in line}
    assert [losses[line["step"]] for line in first] == [line["total"] for line in first]
    assert sorted(losses) == [1, 2, 3, 4, 5, 6]


STATES: dict[str, Callable[[Path, Path], object]] = {
    "weights instead": lambda run, state: shutil.copy(run / "last.safetensors", state),
    "optimizer only": lambda run, state: save_file({n: t for n, t in load_file(state).items() if n.startswith("adam.")}, state, _metadata(run)),
    "truncated": lambda run, state: state.write_bytes(state.read_bytes()[:5000]),
    "empty": lambda run, state: state.write_bytes(b""),
    "another shape": lambda run, state: save_file({n: t.reshape(-1) for n, t in load_file(state).items()}, state, _metadata(run)),
}  # fmt: skip


def _metadata(run: Path) -> dict[str, str]:
    with safe_open(run / "last.safetensors", "pt") as file:
        found: dict[str, str] = file.metadata()
    return found


@pytest.mark.parametrize("kind", STATES)
@pytest.mark.filterwarnings("ignore:unclosed file")  # the lock of a run that never began
def test_22_states_that_are_none(short: Path, tiny: Path, faces: Path, tmp_path: Path, kind: str) -> None:
    import argparse

    from training.loop import Run

    out = Path(shutil.copytree(short, tmp_path / "run"))
    STATES[kind](out, out / "last.state.safetensors")
    options = argparse.Namespace(
        preset=None, data=[str(faces)], valid=None, masks=None, out=out, init=None, resume=True
    )
    try:
        Run(load(tiny), options)
    except CheckpointError as error:
        assert str(error).count(" | ") == 2  # noqa: PT017
    else:
        pytest.fail("it was resumed")
    gc.collect()


def test_22_a_collapsed_mixture_is_reported(tiny: Path, faces: Path, checkpoint: Path) -> None:
    """One primitive that always wins: the held-out numbers, of which the log warns, name the others."""
    from training.data import find_images
    from training.monitor import fixed_batches, held_out_numbers

    model, config, _ = load_weights(checkpoint)
    with torch.no_grad():
        for name, parameter in model.mixture_head.named_parameters():
            parameter.zero_()
            if name == "mu.bias":
                parameter.view(config.model.primitives, -1)[1:] = 100
    batches = fixed_batches(Pictures(find_images(faces), 32), MaskSource(config.masks, 32), 16)
    numbers = held_out_numbers(model, batches)
    assert numbers["wins"] == [1, 0, 0, 0]
    assert numbers["dead"] == [1, 2, 3]


def test_22_pictures_of_every_kind_can_be_trained_on(tmp_path: Path) -> None:
    for mode in ("1", "L", "LA", "P", "RGBA", "CMYK", "I;16"):
        image = Image.fromarray(np.zeros((40, 40), np.uint16)) if mode == "I;16" else Image.new(mode, (40, 40))
        image.save(tmp_path / "x.tif")
        assert Pictures([tmp_path / "x.tif"], 32)[0][0].shape == (32, 32, 3)
