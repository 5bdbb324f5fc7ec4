"""Attack 23: the command. Allowed: exit code 0, or 1 or 2 and one line for each failure; never a traceback, never a partial file."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from picme_sdk import Completer
from picme_sdk.bundle.manifest import seal_of
from picme_sdk.cli import main
from picme_sdk.errors import PicmeError
from picme_sdk.video.files import complete_video
from tests.attacks.conftest import MASK, PHOTO
from tests.attacks.faults import picture, video
from tests.conftest import ROOT
from tests.vectors.make import photo as formula


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """a.png and its mask m.png."""
    folder = tmp_path_factory.mktemp("files")
    Image.fromarray(PHOTO).save(folder / "a.png")
    Image.fromarray(MASK).save(folder / "m.png")
    return folder


def picme(*arguments: Any, cwd: Path, **options: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "picme_sdk.cli", *(os.fsencode(str(a)) for a in arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    environment.pop("PYTHONUNBUFFERED", None)  # it would hide faults of the buffer
    options = {"capture_output": True} | options if "stdout" not in options else options | {"stderr": subprocess.PIPE}
    return subprocess.run(command, cwd=cwd, env=environment, **options)


def refused(done: subprocess.CompletedProcess[bytes], code: int = 2) -> str:
    text = done.stderr.decode(errors="replace").strip()
    assert done.returncode == code, text
    assert len(text.splitlines()) == 1, text
    return text


@pytest.mark.parametrize("n", ["0", "-1", "1001", "1000000000", "9" * 400])
@pytest.mark.parametrize("command", ["complete", "batch"])
def test_23_impossible_numbers_of_results(
    bundle_folder: Path, files: Path, tmp_path: Path, n: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused at once: not a billion names first, and not "skipped" because no result is missing."""
    what = (
        [str(files / "a.png"), str(files / "m.png")]
        if command == "complete"
        else [str(files), "--mask", str(files / "m.png")]
    )
    start = time.monotonic()
    assert main([command, *what, "-o", str(tmp_path / "out"), "--bundle", str(bundle_folder), f"-n={n}"]) == 2
    assert time.monotonic() - start < 5
    assert "expected an integer from 1 to 1000" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("more", [["--seed=-1"], ["--temperature=nan"], ["--temperature=1e9"], ["--threads=0"], ["--device=gpu"], ["--precision=int3"], ["--bundle=missing"]])  # fmt: skip
def test_23_impossible_settings(
    bundle_folder: Path, files: Path, tmp_path: Path, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["complete", str(files / "a.png"), str(files / "m.png"), "-o", str(tmp_path / "out")]
    assert main([*given, "--bundle", str(bundle_folder), *more]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_23_names_that_are_no_text(bundle_folder: Path, files: Path, tmp_path: Path) -> None:
    """Bytes that are no UTF-8, control characters, a dash in front, 255 bytes: completed or refused in one line."""
    long = "x" * 251 + ".png"
    for name in (os.fsdecode(b"\xff\xfe.png"), "-n.png", "new\nline.png", "\x1b[31m.png", long):
        shutil.copy(files / "a.png", tmp_path / name)
    done = picme("complete", f"./{os.fsdecode(bytes([255, 254]))}.png", files / "m.png", "-n", 1, "-o", "out", "--bundle", bundle_folder.resolve(), cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert picture(tmp_path / "out" / os.fsdecode(b"\xff\xfe-1.png"))
    done = picme("batch", ".", "--mask", files / "m.png", "-o", "all", "--json", "-", "--bundle", bundle_folder.resolve(), cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["done"] == 5
    assert len([picture(path) for path in (tmp_path / "all").iterdir()]) == 5
    text = refused(picme("complete", long, files / "m.png", "-n", 1, "-o", "out", "--bundle", bundle_folder.resolve(), cwd=tmp_path))  # fmt: skip
    assert "too long" in text


def test_23_one_corrupt_photo_of_many(completer: Completer, files: Path, tmp_path: Path, bundle_folder: Path) -> None:
    """The others are done; same stems stay apart; links that lead nowhere, folders and pipes are passed over."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for i in range(60):
        shutil.copy(files / "a.png", photos / f"{i:03d}.png")
    Image.fromarray(PHOTO).save(photos / "000.jpg")
    (photos / "030.png").write_bytes((files / "a.png").read_bytes()[:200])
    (photos / "loop.png").symlink_to(photos / "loop.png")
    (photos / "folder.png").mkdir()
    os.mkfifo(photos / "pipe.png")
    arguments = [
        "batch",
        str(photos),
        "--mask",
        str(files / "m.png"),
        "-o",
        str(tmp_path / "out"),
        "--bundle",
        str(bundle_folder),
    ]
    assert main([*arguments, "--threads", "1", "--json", str(tmp_path / "r.json")]) == 1
    report = json.loads((tmp_path / "r.json").read_text())
    assert (report["done"], report["failed"]) == (60, 1)
    assert next(p for p in report["photos"] if p["state"] == "failed")["photo"] == "030.png"
    assert len(os.listdir(tmp_path / "out")) == 60
    assert {"000.png-1.png", "000.jpg-1.png"} <= set(os.listdir(tmp_path / "out"))
    assert main([*arguments, "--json", str(tmp_path / "r.json")]) == 2, "an existing report stays"
    assert main([*arguments[:5], str(photos), *arguments[6:]]) == 2, "not into the folder of the photos"


def test_23_existing_outputs_stay(bundle_folder: Path, files: Path, tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(b"precious")
    common = ["complete", str(files / "a.png"), str(files / "m.png"), "-n", "1", "--bundle", str(bundle_folder)]
    assert main([*common, "-o", str(tmp_path / "x.png")]) == 2
    assert main([*common, "-o", str(tmp_path / "x.png" / "folder")]) == 2
    assert (tmp_path / "x.png").read_bytes() == b"precious"


def test_23_output_that_is_full_or_closed(bundle_folder: Path, files: Path, tmp_path: Path) -> None:
    """/dev/full and a pipe that nobody reads: one line, not two from the interpreter; a closed stream is an empty one."""
    common = ["complete", files / "a.png", files / "m.png", "-n", 1, "--bundle", bundle_folder.resolve(), "-o"]
    with open("/dev/full", "wb") as full:
        text = refused(picme(*common, tmp_path / "o.png", cwd=tmp_path, stdout=full))
        assert "No space left" in text
        done = picme("inspect", bundle_folder.resolve(), cwd=tmp_path, stdout=full)
        assert "No space left" in refused(done)
    reading, writing = os.pipe()
    os.close(reading)
    assert "Broken pipe" in refused(picme("inspect", bundle_folder.resolve(), cwd=tmp_path, stdout=writing))
    os.close(writing)
    done = picme(*[*common[:1], "-", *common[2:]], "x.png", cwd=tmp_path, preexec_fn=lambda: os.close(0), stdout=subprocess.PIPE)  # fmt: skip
    assert "is no picture" in refused(done)


def test_23_a_large_photo_is_refused_in_one_line(bundle_folder: Path, files: Path, tmp_path: Path) -> None:
    """Pillow warns of such sizes by itself; that is not ours to print."""
    Image.new("1", (11_000, 10_000)).save(tmp_path / "big.png")
    text = refused(
        picme("complete", "big.png", files / "m.png", "-o", "x.png", "--bundle", bundle_folder.resolve(), cwd=tmp_path)
    )
    assert "expected at most 100,000,000 pixels" in text


def test_23_texts_of_a_hostile_bundle_can_be_printed(bundle_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(bundle_folder, tmp_path / "b"))
    table = json.loads((folder / "picme.json").read_text()) | {"licence": "\ud800", "seal": "0" * 64}
    data = (json.dumps(table, indent=1) + "\n").encode()
    (folder / "picme.json").write_bytes(data.replace(b'"seal": "' + b"0" * 64, b'"seal": "' + seal_of(data).encode()))
    done = picme("inspect", "b", cwd=tmp_path)
    assert b"Traceback" not in done.stderr
    assert done.returncode in (0, 2)


def test_23_interrupted_in_the_middle(bundle_folder: Path, files: Path, tmp_path: Path) -> None:
    """Ctrl-C: what was finished stays and is whole, nothing half-made is left, no traceback."""
    photos = tmp_path / "photos"
    photos.mkdir()
    large = Image.fromarray(formula(400, 400))
    mask = np.zeros((400, 400), np.uint8)
    mask[100:300, 100:300] = 255
    Image.fromarray(mask).save(tmp_path / "m.png")
    for i in range(80):
        large.save(photos / f"{i}.png", compress_level=1)
    command = [sys.executable, "-m", "picme_sdk.cli", "batch", str(photos), "--mask", str(tmp_path / "m.png"), "-o", str(tmp_path / "out"), "--bundle", str(bundle_folder)]  # fmt: skip
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not (tmp_path / "out").is_dir() or len(list((tmp_path / "out").glob("[0-9]*"))) < 2:
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    printed = process.communicate(timeout=60)[1]
    assert "Traceback" not in printed, printed
    made = list((tmp_path / "out").iterdir())
    assert 2 <= len(made) < 80
    assert all(picture(path) for path in made), "no hidden part, no half"


def test_23_videos(completer: Completer, tmp_path: Path) -> None:
    """Not a video, half of one, none at all, a mask of another size: `PicmeError`, and no output."""
    video(tmp_path / "good.mp4", 6)
    good = (tmp_path / "good.mp4").read_bytes()
    mask = np.zeros((40, 48), np.uint8)
    mask[10:30, 10:30] = 255
    Image.fromarray(mask).save(tmp_path / "m.png")
    Image.fromarray(mask[:20]).save(tmp_path / "small.png")
    playlist = b"#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:9/x.ts\n#EXT-X-ENDLIST\n"
    for content in (
        b"",
        b"hello",
        good[:100],
        good[: len(good) // 2],
        bytes(len(good)),
        playlist,
        b"concat:/etc/passwd",
    ):
        (tmp_path / "bad.mp4").write_bytes(content)
        with pytest.raises(PicmeError):
            complete_video(completer, tmp_path / "bad.mp4", tmp_path / "out.mkv", tmp_path / "m.png")
    for source, name, hole in (
        ("good.mp4", "out.mkv", "small.png"), ("good.mp4", "out.mkv", "bad.mp4"), ("good.mp4", "out.txt", "m.png"),
        ("good.mp4", "missing/out.mkv", "m.png"), ("missing.mp4", "out.mkv", "m.png"), ("good.mp4", "good.mp4", "m.png"),
    ):  # fmt: skip
        with pytest.raises(PicmeError):
            complete_video(completer, tmp_path / source, tmp_path / name, tmp_path / hole)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.mp4", "good.mp4", "m.png", "small.png"]
    random = np.random.default_rng(23)
    for _ in range(15):
        data = bytearray(good)
        for _ in range(20):
            data[random.integers(len(data))] = random.integers(256)
        (tmp_path / "bad.mp4").write_bytes(data)
        try:
            complete_video(completer, tmp_path / "bad.mp4", tmp_path / "out.mkv", tmp_path / "m.png", force=True)
        except PicmeError:
            continue


def test_23_a_picture_in_a_pipe(bundle_folder: Path, files: Path, tmp_path: Path) -> None:
    stdin = (files / "a.png").read_bytes()
    done = picme("complete", "-", files / "m.png", "-n", 1, "-o", "-", "--bundle", bundle_folder.resolve(), cwd=tmp_path, input=stdin)  # fmt: skip
    assert Image.open(io.BytesIO(done.stdout)).size == (64, 48)
    refused(
        picme("complete", "-", files / "m.png", "-o", "-", "--bundle", bundle_folder.resolve(), cwd=tmp_path, input=b"")
    )
