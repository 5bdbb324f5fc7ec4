"""Video files as streams of frames, with PyAV: `Reader` decodes one, `Writer` encodes one and copies sound and subtitles beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import numpy as np

from picme_sdk.errors import BackendUnavailable, BadVideo, PicmeError
from picme_sdk.pixels.photo import U8

# Encoder by the output's suffix; only containers that keep arbitrary timing. Qualities are set so that the loss is hard to see.
_H264 = ("libx264", {"crf": "17"})
_VP9 = ("libvpx-vp9", {"crf": "24", "b": "0", "row-mt": "1", "cpu-used": "4"})
ENCODERS = {".mp4": _H264, ".m4v": _H264, ".mov": _H264, ".mkv": _H264, ".webm": _VP9}
COPIED = ("audio", "subtitle")
# FFmpeg's bicubic, full chroma in and out, accurate rounding (older PyAV has no names for them); the fast conversion darkens a picture by one level.
EXACT = 0x4 | 0x2000 | 0x4000 | 0x40000
LIMITED = 1  # FFmpeg's number for the usual range of video, 16 to 235


def _pyav() -> ModuleType:
    try:
        import av
    except ImportError as error:
        raise BackendUnavailable("PyAV is not installed", "PyAV for video", "pip install 'picme-sdk[video]'") from error
    return av


@contextmanager
def _translated(given: str, expected: str, cure: str) -> Iterator[None]:
    """FFmpeg's errors as errors of our family."""
    av = _pyav()
    try:
        yield
    except PicmeError:
        raise
    except (av.error.FFmpegError, ValueError) as error:  # PyAV raises its own for some
        reason = " ".join(str(getattr(error, "strerror", error)).split())[:120]
        raise BadVideo(f"{given} ({reason})", expected, cure) from error


class Reader:
    """The first video of a file as upright RGB frames; packets of other streams are collected."""

    def __init__(self, path: Path) -> None:
        av = _pyav()
        if not path.is_file():
            raise BadVideo(f"{path} is no file", "a video", "check the path")
        self.path = path
        with _translated(f"{path} can't be read", "a video", "check the file"):
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
        self.frame: Any = None  # the current one, as it was decoded
        self.packets: list[Any] = []  # of other streams, since they were last copied
        self.turned = False  # whether upright means sides swapped

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.container.close()

    def frames(self, pixels: str = "rgb24") -> Iterator[U8]:
        shape: tuple[int, ...] | None = None
        number = 0
        with _translated(
            f"{self.path} is damaged", "an undamaged video", "let ffmpeg repair it: ffmpeg -i IN REPAIRED.mkv"
        ):
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
        """Give even times to a stream that has none."""
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


class Writer:
    """The output: one encoded video, and the streams that are copied beside it."""

    def __init__(self, path: Path, out: Path, reader: Reader, first: U8) -> None:
        av = _pyav()
        self.reader = reader
        self.height, self.width = first.shape[:2]
        encoder, options = ENCODERS[path.suffix.lower()]
        self.failure = (f"{out.name} can't be written", "a place for the output", "check name and disk")
        with _translated(*self.failure):
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
        with _translated(*self.failure):
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
            packet.duration = self.durations.pop(packet.pts, packet.duration or 0)  # encoders drop it
            self.container.mux_one(packet)

    def close(self) -> None:
        with _translated(*self.failure):
            self._mux(self.stream.encode(None))
            self._copy()
            self.container.close()

    def abandon(self) -> None:
        """Close the file, complete or not."""
        with suppress(_pyav().error.FFmpegError):
            self.container.close()
