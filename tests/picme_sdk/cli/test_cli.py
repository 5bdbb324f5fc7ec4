import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from picme_sdk.cli import main
from tests.conftest import ROOT, read_image
from tests.vectors.make import photo as formula


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    Image.fromarray(formula(60, 50)).save(tmp_path / "photo.png")
    mask = np.zeros((50, 60), np.uint8)
    mask[20:35, 20:40] = 255
    Image.fromarray(mask).save(tmp_path / "mask.png")
    return str(tmp_path / "photo.png"), str(tmp_path / "mask.png")


def test_complete_into_a_folder(
    files: tuple[str, str], bundle_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "complete",
        *files,
        "-n",
        "3",
        "--seed",
        "7",
        "-o",
        str(tmp_path / "out"),
        "--bundle",
        str(bundle_folder),
    ]
    assert main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [Path(f).name for f in report["files"]] == ["photo-1.png", "photo-2.png", "photo-3.png"]
    assert report["device"] == "cpu"
    for file, result in zip(report["files"], report["results"], strict=True):
        picture = read_image(file)
        assert picture.size == (60, 50)
        assert picture.text["picme-token"] == result["token"]
    before = Path(report["files"][0]).read_bytes()
    assert main(arguments) == 2
    assert "exists | expected a new name" in capsys.readouterr().err
    assert Path(report["files"][0]).read_bytes() == before
    assert main([*arguments, "--force"]) == 0


def test_complete_into_one_sheet_or_one_picture(files: tuple[str, str], bundle_folder: Path, tmp_path: Path) -> None:
    base = ["complete", *files, "--bundle", str(bundle_folder), "--seed", "1"]
    assert main([*base, "-n", "6", "-o", str(tmp_path / "sheet.png")]) == 0
    assert read_image(tmp_path / "sheet.png").width > 1000
    assert main([*base, "-n", "1", "-o", str(tmp_path / "one.png")]) == 0
    assert read_image(tmp_path / "one.png").size == (60, 50)


def test_pipes(files: tuple[str, str], bundle_folder: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "picme_sdk.cli",
        "complete",
        "-",
        files[1],
        "-n",
        "1",
        "--seed",
        "1",
        "-o",
        "-",
        "--bundle",
        str(bundle_folder),
    ]
    done = subprocess.run(command, input=Path(files[0]).read_bytes(), capture_output=True)
    assert done.returncode == 0, done.stderr
    assert Image.open(io.BytesIO(done.stdout)).size == (60, 50)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (["-n", "0"], "n=0"), (["--seed", "-1"], "seed=-1"), (["--primitive", "9"], "primitive=9"), (["--temperature", "-1"], "temperature"),
        (["--device", "cuda"], "pip"), (["--device", "quantum"], "expected one of auto"), (["--bundle", "missing"], "expected a bundle"),
    ],
)  # fmt: skip
def test_mistakes_get_one_line_and_exit_code_2(
    files: tuple[str, str],
    bundle_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    wrong: list[str],
    says: str,
) -> None:
    code = main(["complete", *files, "-o", str(tmp_path / "out"), "--bundle", str(bundle_folder), *wrong])
    printed = capsys.readouterr().err
    assert code == 2
    assert says in printed
    assert len(printed.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_batch_reports_and_sets_the_exit_code(
    files: tuple[str, str], bundle_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    Path(files[0]).rename(folder / "good.png")
    arguments = ["batch", str(folder), "--mask", files[1], "-o", str(tmp_path / "out"), "--bundle", str(bundle_folder)]
    assert main([*arguments, "--json", str(tmp_path / "report.json")]) == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["done"], report["failed"]) == (1, 0)
    assert report["photos"][0]["results"][0]["file"] == "good.png-1.png"
    assert report["photos"][0]["ambiguity"] > 1
    (folder / "bad.png").write_text("no picture")
    assert main([*arguments, "--json", "-"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["skipped"] == 1
    assert "bad.png:" in captured.err
    assert main([*arguments, "--json", str(tmp_path / "report.json")]) == 2, "a report is not overwritten either"


@pytest.mark.parametrize("wrong", [["missing"], [".", "--mask", "missing.png"], [".", "-o", "."]])
def test_batch_mistakes(bundle_folder: Path, tmp_path: Path, wrong: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["batch", "-o", "out", "--bundle", str(bundle_folder), *wrong]) == 2


def test_demo_writes_a_labelled_sheet(bundle_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "-o", str(tmp_path / "demo.png"), "--bundle", str(bundle_folder)]) == 0
    printed = capsys.readouterr().out
    assert "equally likely answers" in printed
    assert str(tmp_path / "demo.png") in printed
    sheet = np.asarray(read_image(tmp_path / "demo.png"))
    assert sheet.shape[:2] == (604, 1064)
    assert (sheet < 60).any(), "captions are drawn"


def test_doctor_says_what_auto_takes(bundle_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--bundle", str(bundle_folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    by_title = {a["title"]: a for a in found["attempts"]}
    assert by_title["ONNX Runtime on the CPU"]["works"]
    assert found["chosen"] in by_title
    if found["gpu"] == "none":
        assert found["chosen"] == "ONNX Runtime on the CPU"
        assert "pip" in by_title["ONNX Runtime with CUDA"]["note"]
    assert main(["doctor", "--bundle", str(bundle_folder)]) == 0
    assert "auto takes:" in capsys.readouterr().out
    assert main(["doctor", "--bundle", "missing"]) == 1


def test_bench_measures_and_draws(bundle_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["bench", "--bundle", str(bundle_folder), "--rounds", "2", "--plot", str(tmp_path / "plot.png")]
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["device"] == "cpu"
    assert found["encode"]["p50"] > 0
    assert found["six"]["p50"] > found["encode"]["p50"]
    assert set(found["by_count"]) == {"1", "2", "4", "6", "8", "12", "16"}
    assert read_image(tmp_path / "plot.png").size == (640, 400)
    assert main(arguments) == 2, "a plot is not overwritten"
    assert main(["bench", "--bundle", str(bundle_folder), "--rounds", "1"]) == 0
    assert "around the graphs" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["complete", "batch", "video", "bench", "studio", "demo", "inspect", "doctor"])
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    assert stopped.value.code == 0
    assert "usage: picme" in capsys.readouterr().out


def test_video_previews_and_measures(
    bundle_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import av

    monkeypatch.chdir(tmp_path)
    mask = np.zeros((40, 48), np.uint8)
    mask[12:26, 14:30] = 255
    Image.fromarray(mask).save("mask.png")
    with av.open("in.mp4", "w") as out:
        stream = out.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 48, 40, "yuv420p"
        for _ in range(3):
            out.mux(stream.encode(av.VideoFrame.from_ndarray(formula(48, 40))))
        out.mux(stream.encode(None))
    base = ["--mask", "mask.png", "--bundle", str(bundle_folder)]
    assert main(["video", "in.mp4", *base]) == 2
    assert "neither OUT nor --preview" in capsys.readouterr().err
    assert main(["video", "in.mp4", *base, "--preview", "sheet.png"]) == 0
    assert read_image(tmp_path / "sheet.png").width > 1000
    assert main(["video", "in.mp4", "out.mp4", *base]) == 0
    printed = capsys.readouterr().out
    for word in ("3 frames of 48x40", "pinned", "independent", "source", "out.mp4"):
        assert word in printed
    assert main(["video", "in.mp4", "out.mp4", *base]) == 2, "nothing is overwritten"
    assert main(["video", "in.mp4", "out.mp4", *base, "--force", "--json", "--primitive", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["frames"] == 3


def test_help_is_fast_because_it_imports_no_numpy() -> None:
    code = "import sys; from picme_sdk.cli import parser; parser().format_help(); sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
