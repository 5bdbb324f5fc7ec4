import itertools
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from picme_sdk import Completer
from picme_sdk.errors import BackendUnavailable, BadMask, BadVideo, FileExists
from picme_sdk.video import complete_video, preview
from tests.vectors.make import photo as formula

WIDTH, HEIGHT, FRAMES = 48, 40, 6


@pytest.fixture(scope="module")
def completer(bundle_folder: Path):
    with Completer(bundle_folder, "cpu") as made:
        yield made


def frame(i: int, width: int = WIDTH, height: int = HEIGHT) -> np.ndarray:
    smooth = Image.fromarray(formula(8, 8)).resize((width + 20, height), Image.Resampling.BICUBIC)
    return np.ascontiguousarray(np.asarray(smooth)[:, i : i + width])


def write(
    path: Path,
    frames: Iterable[np.ndarray],
    codec: str = "libx264",
    pixels: str = "yuv444p",
    rate: Fraction | int = 25,
    times: Iterable[int] | None = None,
    sound: str | None = None,
    samples: int = 9600,
    prepare: Callable[[object], object] = lambda stream: None,
) -> Path:
    """A clip; `times` are milliseconds, for a variable rate."""
    with av.open(str(path), "w") as out:
        options = {"crf": "4"} if codec == "libx264" else {}
        stream, made = out.add_stream(codec, rate=rate, options=options), list(frames)
        stream.height, stream.width = made[0].shape[:2] if made else (HEIGHT, WIDTH)
        stream.pix_fmt = pixels
        prepare(stream)
        if times is not None:
            stream.codec_context.time_base = Fraction(1, 1000)
        voice = out.add_stream(sound, rate=48000) if sound else None
        for picture, time in zip(made, times or itertools.repeat(None), strict=False):
            new = av.VideoFrame.from_ndarray(picture, "rgb24" if picture.ndim == 3 else "gray")
            if time is not None:
                new.pts, new.time_base = time, Fraction(1, 1000)
            out.mux(stream.encode(new))
        out.mux(stream.encode(None))
        if voice:
            wave = np.sin(np.arange(samples) * 0.05)
            form, values = (
                ("s16", (wave * 9000).astype(np.int16)) if "pcm" in sound else ("fltp", wave.astype(np.float32))
            )
            spoken = av.AudioFrame.from_ndarray(values[None], form, "mono")
            spoken.sample_rate, spoken.pts = 48000, 0
            out.mux(voice.encode(spoken))
            out.mux(voice.encode(None))
    return path


def read(path: Path) -> tuple[list[np.ndarray], list[float]]:
    with av.open(str(path)) as clip:
        frames = list(clip.decode(video=0))
        return [f.to_ndarray(format="rgb24") for f in frames], [float(f.pts * f.time_base) for f in frames]


def sound(path: Path) -> list[tuple[bytes, float]]:
    with av.open(str(path)) as clip:
        return [(bytes(p), float(p.pts * p.time_base)) for p in clip.demux(audio=0) if p.dts is not None]


@pytest.fixture
def mask(tmp_path: Path) -> Path:
    return write_mask(tmp_path / "mask.png")


def write_mask(path: Path, width: int = WIDTH, height: int = HEIGHT) -> Path:
    values = np.zeros((height, width), np.uint8)
    values[12:26, 14:30] = 255
    Image.fromarray(values).save(path)
    return path


def left_over(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name.startswith(".")}


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    return write(tmp_path / "in.mp4", [frame(i) for i in range(FRAMES)], sound="aac")


def check_kept(before: list[np.ndarray], after: list[np.ndarray], hole: np.ndarray, most: float = 3.0) -> None:
    """Outside the hole only the codec changes something; inside, the frames are new."""
    assert len(before) == len(after)
    for a, b in zip(before, after, strict=True):
        assert a.shape == b.shape
        gap = np.abs(a.astype(int) - b)
        assert gap[~hole].mean() < most
        assert gap[hole].mean() > 2 * gap[~hole].mean()


def test_pictures_are_completed_sound_and_timing_kept(
    completer: Completer, clip: Path, mask: Path, tmp_path: Path
) -> None:
    calls: list[tuple[int, int | None]] = []
    report = complete_video(
        completer, clip, tmp_path / "out.mp4", mask, seed=3, done=lambda made, total: calls.append((made, total))
    )
    (before, times), (after, kept) = read(clip), read(tmp_path / "out.mp4")
    with Image.open(mask) as opened:
        check_kept(before, after, np.asarray(opened) > 0)
    assert kept == times
    assert sound(tmp_path / "out.mp4") == sound(clip)
    assert calls == [(i + 1, FRAMES) for i in range(FRAMES)]
    assert (report.frames, report.size, report.dropped) == (FRAMES, (WIDTH, HEIGHT), [])
    assert report.speed > 0
    assert report.stability.pairs == FRAMES - 1
    assert report.as_dict()["stability"]["compared"] == 1
    assert left_over(tmp_path) == set()


@pytest.mark.parametrize("name", ["out.mp4", "out.mkv", "out.webm", "out.mov"])
def test_variable_rates_are_kept(completer: Completer, mask: Path, tmp_path: Path, name: str) -> None:
    times = [0, 40, 55, 200, 210, 500]
    source = write(tmp_path / "in.mkv", [frame(i) for i in range(FRAMES)], times=times)
    complete_video(completer, source, tmp_path / name, mask)
    assert read(tmp_path / name)[1] == pytest.approx([t / 1000 for t in times], abs=1e-3)


def test_the_last_frame_stays_as_long_as_it_did(completer: Completer, mask: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "in.mp4", [frame(i) for i in range(3)], times=[0, 300, 400])
    complete_video(completer, source, tmp_path / "out.mp4", mask)
    with av.open(str(source)) as before, av.open(str(tmp_path / "out.mp4")) as after:
        assert before.duration == after.duration


def test_sound_that_goes_on_after_the_pictures(completer: Completer, mask: Path, tmp_path: Path) -> None:
    pictures = [frame(i) for i in range(2)]
    source = write(tmp_path / "in.mkv", pictures, "rawvideo", "yuv420p", sound="aac", samples=96000)
    complete_video(completer, source, tmp_path / "out.mkv", mask)
    assert sound(tmp_path / "out.mkv") == sound(source)


@pytest.mark.parametrize("rate", [Fraction(30000, 1001), Fraction(7, 3), 120])
def test_odd_rates(completer: Completer, mask: Path, tmp_path: Path, rate: Fraction | int) -> None:
    source = write(tmp_path / "in.mp4", [frame(i) for i in range(4)], rate=rate)
    complete_video(completer, source, tmp_path / "out.mp4", mask)
    assert read(tmp_path / "out.mp4")[1] == read(source)[1]
    with av.open(str(source)) as a, av.open(str(tmp_path / "out.mp4")) as b:
        mine, theirs = b.streams.video[0], a.streams.video[0]
        assert mine.average_rate == theirs.average_rate
        # A container rounds how long its last picture lasts, and not always alike: a millisecond is never seen.
        assert mine.duration * mine.time_base == pytest.approx(theirs.duration * theirs.time_base, abs=1e-3)


def test_a_late_start_is_kept(completer: Completer, mask: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "in.mkv", [frame(i) for i in range(3)], times=[700, 740, 780], sound="aac")
    complete_video(completer, source, tmp_path / "out.mkv", mask)
    assert read(tmp_path / "out.mkv")[1] == read(source)[1]
    assert sound(tmp_path / "out.mkv") == sound(source)


@pytest.mark.parametrize("size", [(47, 39), (48, 39), (33, 40)])
@pytest.mark.parametrize("name", ["out.mp4", "out.webm"])
def test_odd_sizes(completer: Completer, tmp_path: Path, size: tuple[int, int], name: str) -> None:
    source = write(tmp_path / "in.mkv", [frame(i, *size) for i in range(2)], "ffv1")
    complete_video(completer, source, tmp_path / name, write_mask(tmp_path / "mask.png", *size))
    assert [made.shape for made in read(tmp_path / name)[0]] == [(size[1], size[0], 3)] * 2


@pytest.mark.parametrize("degrees", [90, 180, -90])
def test_rotated_streams_become_upright(completer: Completer, tmp_path: Path, degrees: int) -> None:
    source = write(tmp_path / "in.mp4", [frame(i) for i in range(2)], prepare=lambda s: s.set_display_rotation(degrees))
    with av.open(str(source)) as opened:
        assert abs(next(opened.decode(video=0)).rotation) == abs(degrees)
    upright = [np.rot90(picture, degrees // 90) for picture in read(source)[0]]
    hole = write_mask(tmp_path / "mask.png", upright[0].shape[1], upright[0].shape[0])
    complete_video(completer, source, tmp_path / "out.mp4", hole)
    after = read(tmp_path / "out.mp4")[0]
    with Image.open(hole) as opened:
        check_kept(upright, after, np.asarray(opened) > 0)
    with av.open(str(tmp_path / "out.mp4")) as made:
        assert next(made.decode(video=0)).rotation == 0


def test_mirrored_streams_and_slanted_ones(completer: Completer, mask: Path, tmp_path: Path) -> None:
    mirrored = write(
        tmp_path / "in.mp4",
        [frame(0)],
        prepare=lambda s: s.set_display_matrix((-65536, 0, 0, 0, 65536, 0, 0, 0, 1 << 30)),
    )
    complete_video(completer, mirrored, tmp_path / "out.mp4", mask)
    with Image.open(mask) as opened:
        check_kept([read(mirrored)[0][0][:, ::-1]], read(tmp_path / "out.mp4")[0], np.asarray(opened) > 0)
    slanted = write(tmp_path / "slanted.mp4", [frame(0)], prepare=lambda s: s.set_display_rotation(30))
    with pytest.raises(BadVideo, match="at an angle"):
        complete_video(completer, slanted, tmp_path / "none.mp4", mask)


@pytest.mark.parametrize(("space", "range_"), [(1, 1), (5, 1), (1, 2)])
def test_colours_stay(completer: Completer, mask: Path, tmp_path: Path, space: int, range_: int) -> None:
    def prepare(stream: object) -> None:
        stream.codec_context.colorspace, stream.codec_context.color_range = space, range_  # type: ignore[attr-defined]

    plain = np.full((HEIGHT, WIDTH, 3), (190, 90, 60), np.uint8)
    source = write(tmp_path / "in.mkv", [plain], prepare=prepare)
    complete_video(completer, source, tmp_path / "out.mkv", mask)
    before, after = read(source)[0][0][2, 2].astype(int), read(tmp_path / "out.mkv")[0][0][2, 2]
    assert np.abs(after - before).max() <= 3, "another matrix or range would be ten and more off"
    with av.open(str(tmp_path / "out.mkv")) as made:
        assert next(made.decode(video=0)).colorspace == space


def test_pictures_do_not_get_darker(completer: Completer, mask: Path, tmp_path: Path) -> None:
    plain = [np.full((HEIGHT, WIDTH, 3), level, np.uint8) for level in range(30, 230, 20)]
    source = write(tmp_path / "in.mkv", plain, "ffv1", "yuv420p")
    complete_video(completer, source, tmp_path / "out.mkv", mask)
    corners = []
    for path in (source, tmp_path / "out.mkv"):
        with av.open(str(path)) as clip:
            corners.append([float(f.reformat(format="gray").to_ndarray()[:6].mean()) for f in clip.decode(video=0)])
    assert np.mean(corners[1]) == pytest.approx(np.mean(corners[0]), abs=0.4)


def test_the_aspect_of_pixels_is_kept(completer: Completer, mask: Path, tmp_path: Path) -> None:
    def prepare(stream: object) -> None:
        stream.codec_context.sample_aspect_ratio = Fraction(4, 3)  # type: ignore[attr-defined]

    source = write(tmp_path / "in.mp4", [frame(0)], prepare=prepare)
    complete_video(completer, source, tmp_path / "out.mp4", mask)
    with av.open(str(tmp_path / "out.mp4")) as made:
        assert made.streams.video[0].sample_aspect_ratio == Fraction(4, 3)


def test_a_mask_for_each_frame(completer: Completer, clip: Path, tmp_path: Path) -> None:
    holes = [np.zeros((HEIGHT, WIDTH), np.uint8) for _ in range(FRAMES)]
    for i, values in enumerate(holes[1:]):
        values[12:26, 10 + i : 26 + i] = 255
    masks = write(tmp_path / "masks.mkv", holes, "ffv1", "gray")
    complete_video(completer, clip, tmp_path / "out.mkv", masks)
    before, after = read(clip)[0], read(tmp_path / "out.mkv")[0]
    check_kept(before[1:2], after[1:2], holes[1] > 0)
    check_kept(before[5:], after[5:], holes[5] > 0)
    assert np.abs(before[0].astype(int) - after[0]).mean() < 3, "no hole, no change"
    short = write(tmp_path / "short.mkv", holes[:3], "ffv1", "gray")
    with pytest.raises(BadMask, match="3 masks for more frames"):
        complete_video(completer, clip, tmp_path / "none.mkv", short)
    assert not (tmp_path / "none.mkv").exists()
    assert left_over(tmp_path) == set()


def test_a_file_that_changes_its_size(completer: Completer, mask: Path, tmp_path: Path) -> None:
    parts = [write(tmp_path / f"{i}.h264", [frame(0, *size)] * 3) for i, size in enumerate([(48, 40), (64, 48)])]
    (tmp_path / "both.h264").write_bytes(b"".join(part.read_bytes() for part in parts))
    with pytest.raises(BadVideo, match=r"frame 3 is 64x48 after 48x40 \| expected one size \| scale it first"):
        complete_video(completer, tmp_path / "both.h264", tmp_path / "out.mp4", mask)
    assert not (tmp_path / "out.mp4").exists()
    assert left_over(tmp_path) == set()


def test_a_stream_without_times_gets_even_ones(completer: Completer, mask: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "raw.h264", [frame(i) for i in range(4)])
    complete_video(completer, source, tmp_path / "out.mp4", mask)
    assert read(tmp_path / "out.mp4")[1] == pytest.approx([0, 0.04, 0.08, 0.12])


def test_files_that_are_no_video(completer: Completer, clip: Path, mask: Path, tmp_path: Path) -> None:
    (tmp_path / "text.mp4").write_text("no video")
    (tmp_path / "cut.mp4").write_bytes(clip.read_bytes()[:200])
    with av.open(str(tmp_path / "sound.wav"), "w") as out:
        voice = out.add_stream("pcm_s16le", rate=8000)
        spoken = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), "s16", "mono")
        spoken.sample_rate = 8000
        out.mux(voice.encode(spoken))
    with av.open(str(tmp_path / "header.mkv"), "w") as out:
        stream = out.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        out.start_encoding()
    write(tmp_path / "unseen.mkv", [], sound="aac")
    for name, says in {
        "text.mp4": "can't be read",
        "cut.mp4": "can't be read",
        "sound.wav": "no video stream",
        "header.mkv": "can't be read",
        "unseen.mkv": "has no frames",
        "missing.mp4": "is no file",
        ".": "is no file",
    }.items():
        with pytest.raises(BadVideo, match=says) as caught:
            complete_video(completer, tmp_path / name, tmp_path / "out.mp4", mask)
        assert str(caught.value).count(" | ") == 2
        assert not (tmp_path / "out.mp4").exists()
    assert left_over(tmp_path) == set()


def test_damage_inside_a_file_never_leaves_half_an_output(completer: Completer, mask: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "in.mkv", [frame(i) for i in range(12)])
    data = bytearray(source.read_bytes())
    for at in range(len(data) // 2, len(data) - 200, 3):
        data[at] ^= 0x5A
    source.write_bytes(bytes(data))
    with suppress(BadVideo):  # decoders mend what they can
        complete_video(completer, source, tmp_path / "out.mp4", mask)
    assert not (tmp_path / "out.mp4").exists() or read(tmp_path / "out.mp4")[0]
    assert left_over(tmp_path) == set()


def test_nothing_is_overwritten_unless_told(completer: Completer, clip: Path, mask: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.mp4"
    out.write_text("precious")
    with pytest.raises(FileExists):
        complete_video(completer, clip, out, mask)
    assert out.read_text() == "precious"
    complete_video(completer, clip, out, mask, force=True)
    assert len(read(out)[0]) == FRAMES
    complete_video(completer, clip, clip, mask, force=True)
    assert len(read(clip)[0]) == FRAMES, "even onto itself"


def test_the_output_appears_only_when_complete(completer: Completer, clip: Path, mask: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.mp4"

    def stop(made: int, total: int | None) -> None:
        assert not out.exists()
        if made == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        complete_video(completer, clip, out, mask, done=stop)
    assert not out.exists()
    assert left_over(tmp_path) == set()


def test_outputs_that_can_not_be(completer: Completer, clip: Path, mask: Path, tmp_path: Path) -> None:
    with pytest.raises(BadVideo, match=r"a name that ends in \.mp4"):
        complete_video(completer, clip, tmp_path / "out.gif", mask)
    with pytest.raises(BadVideo, match="can't be written"):
        complete_video(completer, clip, tmp_path / "missing" / "out.mp4", mask)
    loud = write(tmp_path / "loud.mkv", [frame(0)], sound="pcm_s16le")
    with pytest.raises(BadVideo, match=r"pcm_s16le sound .* write \.mkv"):
        complete_video(completer, loud, tmp_path / "out.webm", mask)
    complete_video(completer, loud, tmp_path / "out.mkv", mask)
    assert sound(tmp_path / "out.mkv") == sound(loud)
    assert left_over(tmp_path) == set()


def test_masks_that_can_not_be(completer: Completer, clip: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("no mask")
    for path, says in {
        write_mask(tmp_path / "small.png", 40, 40): "frame 0: a mask of 40x40 for a photo of 48x40",
        tmp_path / "text.txt": "mask .*text.txt can't be read",
        tmp_path / "missing.png": "mask .*missing.png does not exist",
    }.items():
        with pytest.raises(BadMask, match=says):
            complete_video(completer, clip, tmp_path / "out.mp4", path)


def test_the_preview_shows_what_each_idea_would_give(completer: Completer, clip: Path, mask: Path) -> None:
    sheet = preview(completer, clip, mask, seed=2)
    ideas = completer.manifest.primitives
    assert sheet.height > 256 * -(-(2 + ideas) // 4)
    assert preview(completer, clip, mask, seed=2).tobytes() == sheet.tobytes()
    assert preview(completer, clip, mask, seed=3).tobytes() != sheet.tobytes()


def test_the_preview_takes_the_first_frame_with_a_hole(completer: Completer, clip: Path, tmp_path: Path) -> None:
    empty, full = np.zeros((HEIGHT, WIDTH), np.uint8), np.zeros((HEIGHT, WIDTH), np.uint8)
    full[12:26, 14:30] = 255
    late = write(tmp_path / "late.mkv", [empty, empty, full], "ffv1", "gray")
    assert preview(completer, clip, late).width > 1000
    never = write(tmp_path / "never.mkv", [empty] * FRAMES, "ffv1", "gray")
    with pytest.raises(BadMask, match="empty on every frame"):
        preview(completer, clip, never)


def test_without_pyav(completer: Completer, clip: Path, mask: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(BackendUnavailable, match=r"pip install 'picme-sdk\[video\]'"):
        complete_video(completer, clip, clip.with_name("out.mp4"), mask)


def test_importing_does_not_need_pyav() -> None:
    code = "import sys; sys.modules['av'] = None; import picme_sdk.video"
    subprocess.run([sys.executable, "-c", code], check=True)
