"""Video files through a completer, with PyAV: pictures are completed, sound and timing are kept, the output appears only when complete.

complete_video   a file to a file, with its measured temporal stability
preview          the ideas for the first frame that has a hole, as a sheet
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from itertools import repeat
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, TypeVar

import numpy as np
from PIL import Image

from picme_sdk.completer import Completer
from picme_sdk.contract import IMAGE_FORMATS
from picme_sdk.errors import BackendUnavailable, BadMask, FileExists, PicmeError
from picme_sdk.frames import SMOOTHING, Meter, Stability, complete_frames
from picme_sdk.imaging import U8, load, open_image
from picme_sdk.masks import FAINT, mask_values
from picme_sdk.sheet import results_sheet

# Encoder by the output's suffix; containers that keep arbitrary timing only. Rates are set for "hard to tell from the input".
_H264 = ("libx264", {"crf": "17"})
_VP9 = ("libvpx-vp9", {"crf": "24", "b": "0", "row-mt": "1", "cpu-used": "4"})
ENCODERS = {".mp4": _H264, ".m4v": _H264, ".mov": _H264, ".mkv": _H264, ".webm": _VP9}
COPIED = ("audio", "subtitle")
# FFmpeg's bicubic, full chroma in and out, accurate rounding (older PyAV has no names for them): its fast way darkens a picture by a level.
EXACT = 0x4 | 0x2000 | 0x4000 | 0x40000
LIMITED = 1  # FFmpeg's number for the usual range of video, 16 to 235

T = TypeVar("T")


class BadVideo(PicmeError):
    """A video can't be read or written, or has a form that is not supported."""


@dataclass(frozen=True)
class VideoReport:
    """What was made."""

    frames: int
    size: tuple[int, int]
    seconds: float
    stability: Stability
    dropped: list[str] = field(default_factory=list)  # streams that were not carried over

    @property
    def speed(self) -> float:
        """Frames a second."""
        return self.frames / self.seconds

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"frames_per_second": self.speed}

    def __str__(self) -> str:
        found = self.stability
        lines = [
            f"{self.frames} frames of {self.size[0]}x{self.size[1]} in {self.seconds:.1f} s, {self.speed:.1f} a second"
        ]
        lines += [f"not carried over: {', '.join(self.dropped)}"] if self.dropped else []
        lines += ["mean change from a frame to the next inside the hole, of 255 levels:"]
        for name, change, pairs in (
            ("pinned", found.pinned, found.pairs),
            ("independent", found.independent, found.compared),
            ("source", found.source, found.pairs),
        ):
            lines += [f"  {name:12} {'-' if change is None else f'{change:.2f}':>6}   ({pairs} pairs)"]
        return "\n".join(lines)


def complete_video(
    completer: Completer,
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    mask: str | os.PathLike[str],
    primitive: int | None = None,
    seed: int = 0,
    temperature: float = 1.0,
    smoothing: float = SMOOTHING,
    force: bool = False,
    done: Callable[[int, int | None], None] = lambda frames, total: None,
) -> VideoReport:
    """Complete the first video of a file and write it to `out`: .mp4, .m4v, .mov, .mkv (H.264) or .webm (VP9).

    mask    a picture for all frames, or a video whose n-th frame is the n-th frame's mask; of the upright size, light = hole
    force   replace `out`; else an existing file raises `FileExists`
    done    called after each frame with the number of frames made, and of all if the file knows it

    The rest is as in `complete_frames`. Sound and subtitles are copied, not encoded again. Every frame keeps its time, at variable rates too.
    Rotated streams become upright. `out` appears when it is complete. PyAV missing raises `BackendUnavailable`, a file that can't be
    read, or that changes its size on the way, `BadVideo`.
    """
    source, out = Path(source), Path(out)
    if out.suffix.lower() not in ENCODERS:
        raise BadVideo(f"output {out}", f"a name that ends in {', '.join(ENCODERS)}", "choose another name")
    _free(out, force)
    start = time.perf_counter()
    temporary = out.with_name(f".{os.getpid()}.{out.name}")
    meter = Meter(completer)
    with _Reader(source) as reader:
        frames, masks = _Last(reader.frames()), _Last(_masks(Path(mask)))
        completed = complete_frames(completer, frames, masks, primitive, seed, temperature, smoothing)
        writer: _Writer | None = None
        try:
            for made in completed:
                writer = writer or _Writer(temporary, reader, made)
                writer.write(made)
                meter.add(frames.last, masks.last, made)
                done(meter.frames, reader.total)
            if writer is None:
                raise BadVideo(f"{source} has no frames", "at least one", "check the file")
            writer.close()
            _free(out, force)
            temporary.replace(out)
        finally:
            if writer is not None:
                writer.abandon()
            temporary.unlink(missing_ok=True)
    return VideoReport(
        meter.frames, (writer.width, writer.height), time.perf_counter() - start, meter.stability(), writer.dropped
    )


def preview(
    completer: Completer,
    source: str | os.PathLike[str],
    mask: str | os.PathLike[str],
    seed: int = 0,
    temperature: float = 1.0,
) -> Image.Image:
    """A sheet of the first frame that has a hole: each primitive once, heaviest first, as `complete_video` would fill it with that one."""
    with _Reader(Path(source)) as reader:
        for frame, hole in zip(reader.frames(), _masks(Path(mask)), strict=False):
            if hole.max(initial=0) <= FAINT:
                continue
            photo = Image.fromarray(frame)
            scene = completer.encode(photo, hole)
            ideas = [scene.sample(1, seed, primitive=i, temperature=temperature)[0] for i, _ in scene.primitives]
            return results_sheet(photo, Image.fromarray(hole), ideas)
    raise BadMask(f"{mask} is empty on every frame of {source}", "a hole in at least one", "draw the hole")


def _free(out: Path, force: bool) -> None:
    if out.exists() and not force:
        raise FileExists(f"{out} exists", "a new name", "choose another, or --force to replace it")


def _pyav() -> ModuleType:
    try:
        import av
    except ImportError as error:
        raise BackendUnavailable("PyAV is not installed", "PyAV for video", "pip install 'picme-sdk[video]'") from error
    return av


@contextmanager
def _telling(given: str, expected: str, cure: str) -> Iterator[None]:
    """FFmpeg's errors as ours."""
    av = _pyav()
    try:
        yield
    except PicmeError:
        raise
    except (av.error.FFmpegError, ValueError) as error:  # PyAV has words of its own for some
        reason = " ".join(str(getattr(error, "strerror", error)).split())[:120]
        raise BadVideo(f"{given} ({reason})", expected, cure) from error


class _Last(Iterator[T]):
    """An iterator that remembers what it gave last."""

    last: T

    def __init__(self, items: Iterable[T]) -> None:
        self.items = iter(items)

    def __next__(self) -> T:
        self.last = next(self.items)
        return self.last


class _Reader:
    """The first video of a file as upright RGB frames; packets of other streams come aside."""

    def __init__(self, path: Path) -> None:
        av = _pyav()
        if not path.is_file():
            raise BadVideo(f"{path} is no file", "a video", "check the path")
        self.path = path
        with _telling(f"{path} can't be read", "a video", "check the file"):
            # Files only: a playlist must not make us fetch anything.
            self.container = av.open(str(path), options={"protocol_whitelist": "file"}, metadata_errors="replace")
        cover = av.stream.Disposition.attached_pic
        videos = [s for s in self.container.streams.video if not s.disposition & cover and s.codec_context]
        if not videos:
            self.container.close()
            raise BadVideo(f"{path} has no video stream that can be decoded", "a video", "check the file")
        self.stream = videos[0]
        self.stream.thread_type = "AUTO"
        self.rate = Fraction(self.stream.average_rate or self.stream.guessed_rate or 25)
        length = self.stream.duration and float(self.stream.duration * self.stream.time_base * self.rate)
        self.total: int | None = self.stream.frames or (length and round(length)) or None
        self.frame: Any = None  # the current one, as decoded
        self.packets: list[Any] = []  # of other streams, since they were last taken
        self.turned = False  # whether upright means sides swapped

    def __enter__(self) -> _Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.container.close()

    def frames(self, pixels: str = "rgb24") -> Iterator[U8]:
        shape: tuple[int, ...] | None = None
        number = 0
        with _telling(f"{self.path} is damaged", "an undamaged video", "let ffmpeg mend it: ffmpeg -i IN MENDED.mkv"):
            for packet in self.container.demux():
                if packet.stream.index != self.stream.index:
                    if packet.dts is not None:
                        self.packets.append(packet)
                    continue
                for frame in packet.decode():
                    upright = self._upright(frame, frame.to_ndarray(format=pixels, interpolation=EXACT))
                    shape = shape or upright.shape
                    if upright.shape != shape:
                        raise BadVideo(
                            f"{self.path}: frame {number} is {upright.shape[1]}x{upright.shape[0]} after {shape[1]}x{shape[0]}",
                            "one size",
                            f"scale it first: ffmpeg -i IN -vf scale={shape[1]}:{shape[0]} SCALED.mkv",
                        )
                    self._date(frame)
                    self.frame, number = frame, number + 1
                    yield upright

    def _date(self, frame: Any) -> None:
        """Streams without times get even ones."""
        if frame.pts is None:
            frame.time_base = frame.time_base or self.stream.time_base
            step = max(1, round(1 / (self.rate * frame.time_base)))
            frame.pts = 0 if self.frame is None else self.frame.pts + step

    def _upright(self, frame: Any, pixels: U8) -> U8:
        matrix = frame.side_data.get("DISPLAYMATRIX")
        if matrix is None:
            return pixels
        a, b, _, c, d = (round(v / 65536, 3) for v in np.frombuffer(bytes(matrix), np.int32)[:5])
        if (a or d) and (b or c):
            raise BadVideo(
                f"{self.path} is shown at an angle", "turns of 90 degrees and flips", "let ffmpeg turn it first"
            )
        self.turned = bool(b or c)
        if self.turned:
            pixels, a, d = pixels.swapaxes(0, 1), c, b
        return np.ascontiguousarray(pixels[:: -1 if d < 0 else 1, :: -1 if a < 0 else 1])


def _masks(path: Path) -> Iterator[U8]:
    """Masks [h, w] from a picture (the same for ever) or a video."""
    try:
        picture = open_image(path, "mask")
    except PicmeError as error:
        if "is no picture" not in error.given:
            raise BadMask(error.given, error.expected, error.cure) from error
    else:
        yield from repeat(mask_values(picture, load(picture)))
    try:
        with _Reader(path) as reader:
            yield from reader.frames("gray")
    except BadVideo as error:
        formats = f"one of {', '.join(IMAGE_FORMATS)}, or a video"
        raise BadMask(f"mask {error.given}", formats, "convert it first") from error


class _Writer:
    """The output: one encoded video, and what is copied beside it."""

    def __init__(self, path: Path, reader: _Reader, first: U8) -> None:
        av = _pyav()
        self.reader = reader
        self.height, self.width = first.shape[:2]
        encoder, options = ENCODERS[path.suffix.lower()]
        self.told = (f"{path.name.split('.', 2)[-1]} can't be written", "a place for the output", "check name and disk")
        with _telling(*self.told):
            self.container = av.open(str(path), "w")
            self.stream = self.container.add_stream(encoder, rate=reader.rate, options=options)
            context, like = self.stream.codec_context, reader.stream.codec_context
            context.width, context.height, context.time_base = self.width, self.height, reader.frame.time_base
            # Colour is stored at half resolution only where that divides evenly.
            context.pix_fmt = "yuv444p" if self.width % 2 or self.height % 2 else "yuv420p"
            for name in ("colorspace", "color_primaries", "color_trc"):
                setattr(context, name, getattr(like, name))
            context.color_range = LIMITED
            aspect = reader.stream.sample_aspect_ratio
            if aspect:
                context.sample_aspect_ratio = 1 / aspect if reader.turned else aspect
            self.copies: dict[int, Any] = {}
            self.dropped: list[str] = []
            for stream in reader.container.streams:
                if stream.index != reader.stream.index:
                    self._adopt(stream)
        self.durations: dict[int, int] = {}

    def _adopt(self, stream: Any) -> None:
        name = stream.codec_context.codec.canonical_name if stream.codec_context else "unknown"
        if stream.type in COPIED and name in self.container.supported_codecs:
            copy = self.container.add_stream_from_template(stream)
            copy.metadata.update({key: value for key, value in stream.metadata.items() if key in ("language", "title")})
            self.copies[stream.index] = copy
        elif stream.type == "audio":
            raise BadVideo(
                f"{name} sound in {self.reader.path}", f"sound that {self.container.format.name} can hold", "write .mkv"
            )
        else:
            self.dropped.append(f"{stream.type} {stream.index} ({name})")

    def write(self, pixels: U8) -> None:
        av, like = _pyav(), self.reader.frame
        with _telling(*self.told):
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), "rgb24")
            frame = frame.reformat(
                format=self.stream.codec_context.pix_fmt,
                dst_colorspace=like.colorspace,
                dst_color_range=LIMITED,
                interpolation=EXACT,
            )
            frame.pts, frame.time_base = like.pts, like.time_base
            if like.duration:
                self.durations[like.pts] = like.duration
            self._mux(self.stream.encode(frame))
            self._copy()

    def _copy(self) -> None:
        packets, self.reader.packets = self.reader.packets, []
        for packet in packets:
            if packet.stream.index in self.copies:
                packet.stream = self.copies[packet.stream.index]
                self.container.mux_one(packet)

    def _mux(self, packets: list[Any]) -> None:
        for packet in packets:
            packet.duration = self.durations.pop(packet.pts, packet.duration or 0)  # encoders forget it
            self.container.mux_one(packet)

    def close(self) -> None:
        with _telling(*self.told):
            self._mux(self.stream.encode(None))
            self._copy()
            self.container.close()

    def abandon(self) -> None:
        """Let go of the file, complete or not."""
        with suppress(_pyav().error.FFmpegError):
            self.container.close()
