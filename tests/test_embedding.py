"""Runs the recipes of docs/use/embedding.md as they stand; only the model is the tiny one."""

import asyncio
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from tests.conftest import read_image
from tests.vectors.make import photo as formula

PAGE = (Path(__file__).parents[1] / "docs" / "use" / "embedding.md").read_text()
WIDTH, HEIGHT, FRAMES = 64, 48, 5  # as the page's pipe has it


def blocks(heading: str, language: str) -> list[str]:
    """The fenced blocks under a heading."""
    section = re.split(r"^#{2,3} ", PAGE.split(f"# {heading}\n", 1)[1], maxsplit=1, flags=re.M)[0]
    return re.findall(rf"```{language}\n(.*?)```", section, re.S)


def need(module: str = "", program: str = "") -> None:
    """Skip where something is absent; CI must have it."""
    there = shutil.which(program) if program else importlib.util.find_spec(module)
    if not there and not os.environ.get("CI"):
        pytest.skip(f"{program or module} is not installed here")
    assert there, f"{program or module} is missing, and CI may not skip"


@pytest.fixture
def folder(bundle_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the recipes expect to find: photo.jpg, mask.png, erased.png."""
    photo, mask = formula(WIDTH, HEIGHT), np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[14:30, 20:40] = 255
    Image.fromarray(photo).save(tmp_path / "photo.jpg")
    Image.fromarray(mask).save(tmp_path / "mask.png")
    Image.fromarray(np.dstack([photo, 255 - mask])).save(tmp_path / "erased.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def clip(folder: Path) -> Path:
    need("av")
    import av

    smooth = np.asarray(Image.fromarray(formula(8, 8)).resize((WIDTH + FRAMES, HEIGHT), Image.Resampling.BICUBIC))
    with av.open("clip.mp4", "w") as out:
        stream = out.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for i in range(FRAMES):
            picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(smooth[:, i : i + WIDTH]))
            out.mux(stream.encode(picture))
        out.mux(stream.encode(None))
    return folder / "clip.mp4"


def run(recipe: str, bundle: Path) -> dict[str, object]:
    module = ModuleType("recipe")
    exec(compile(with_bundle(recipe, bundle), "recipe", "exec"), module.__dict__)  # noqa: S102 (our own page)
    return module.__dict__


def with_bundle(recipe: str, bundle: Path) -> str:
    assert "Completer()" in recipe
    return recipe.replace("Completer()", f"Completer({str(bundle)!r})")


def check_clip(path: Path) -> None:
    import av

    with av.open(str(path)) as made, av.open("clip.mp4") as source:
        pairs = zip(made.decode(video=0), source.decode(video=0), strict=True)
        frames = [(a.to_ndarray(format="rgb24").astype(int), b.to_ndarray(format="rgb24")) for a, b in pairs]
    assert len(frames) == FRAMES
    hole = np.asarray(read_image(Path("mask.png"))) > 0
    for made_frame, source_frame in frames:
        gap = np.abs(made_frame - source_frame)
        assert gap[hole].mean() > 2 * gap[~hole].mean()
        assert gap[~hole].mean() < 12


def test_every_python_recipe_has_a_test() -> None:
    tested = ("Python application", "Server", "OpenCV loop", "PyAV loop", "ffmpeg pipe")
    assert PAGE.count("```python") == sum(len(blocks(heading, "python")) for heading in tested) == 6


def test_python_application(folder: Path, bundle_folder: Path) -> None:
    (recipe,) = blocks("Python application", "python")
    run(recipe, bundle_folder)["completer"].close()
    names = {path.name for path in folder.glob("filled-*.png")}
    assert names == {"filled-1.png", "filled-2.png", "filled-3.png", "filled-4.png", "filled-more.png"}
    assert read_image(folder / "filled-1.png").size == (WIDTH, HEIGHT)


def test_server(folder: Path, bundle_folder: Path) -> None:
    need("starlette")
    (recipe,) = blocks("Server", "python")
    made = run(recipe, bundle_folder)

    async def post(body: bytes) -> tuple[int, bytes]:
        sent: list[dict[str, object]] = []
        scope = {
            "type": "http", "method": "POST", "path": "/complete", "raw_path": b"/complete", "root_path": "", "scheme": "http",
            "query_string": b"", "headers": [], "http_version": "1.1", "server": ("localhost", 80), "client": ("localhost", 1),
        }  # fmt: skip

        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, object]) -> None:
            sent.append(message)

        await made["app"](scope, receive, send)
        return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])

    async def posts() -> list[tuple[int, bytes]]:
        return [await post(body) for body in (Path("erased.png").read_bytes(), b"no picture", bytes(20_000_001))]

    good, bad, large = asyncio.run(posts())
    assert good[0] == 200
    filled = Image.open(io.BytesIO(good[1]))
    assert (filled.size, np.asarray(filled)[..., 3].min()) == ((WIDTH, HEIGHT), 255)
    assert bad[0] == 400
    assert b"is no picture | expected" in bad[1]
    assert large[0] == 413
    made["completer"].close()


def test_opencv_loop(clip: Path, bundle_folder: Path) -> None:
    need("cv2")
    (recipe,) = blocks("OpenCV loop", "python")
    run(recipe, bundle_folder)
    check_clip(clip.with_name("filled-opencv.mp4"))


def test_pyav_loop(clip: Path, bundle_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, frames = blocks("PyAV loop", "python")
    run(file, bundle_folder)
    check_clip(clip.with_name("filled.mp4"))
    assert "Stability(pinned=" in capsys.readouterr().out
    run(frames, bundle_folder)
    assert len(list(clip.parent.glob("frame-*.png"))) == FRAMES


def shell(script: str, folder: Path) -> None:
    """Run a recipe for the shell, with this interpreter and its commands first on the path."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-ec", script], cwd=folder, env=os.environ | {"PATH": path}, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()


def test_ffmpeg_pipe(clip: Path, bundle_folder: Path) -> None:
    need(program="ffmpeg")
    (program,), (pipe,) = blocks("ffmpeg pipe", "python"), blocks("ffmpeg pipe", "sh")
    clip.with_name("fill.py").write_text(with_bundle(program, bundle_folder))
    shell(pipe, clip.parent)
    check_clip(clip.with_name("filled-pipe.mp4"))


def test_the_command_from_any_language(folder: Path, bundle_folder: Path) -> None:
    (commands,) = blocks("Any language", "sh")
    command = f"'{sys.executable}' -m picme_sdk.cli complete --bundle '{bundle_folder}'"
    shell(commands.replace("picme complete", command), folder)
    assert read_image(folder / "filled-command.png").size == (WIDTH, HEIGHT)
    report = json.loads((folder / "report.json").read_text())
    assert all(Path(file).exists() for file in report["files"])
    assert len(report["files"]) == 4


def test_anchors_of_the_page_exist() -> None:
    titles = {
        re.sub(r"[^\w\s-]", "", t).strip().lower().replace(" ", "-") for t in re.findall(r"^#+ (.+)$", PAGE, re.M)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) <= titles
