"""Video files through a completer: pictures are completed, sound and timing are kept, the output appears only when it is complete.

complete_video   a file to a file, with its measured temporal stability
preview          the ideas for the first frame that has a hole, as a sheet
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any, TypeVar

from PIL import Image

from picme_sdk.completer import Completer
from picme_sdk.contract import IMAGE_FORMATS
from picme_sdk.errors import BadMask, BadVideo, PicmeError, UnknownImageFormat
from picme_sdk.io import check_free, replacing
from picme_sdk.pixels.mask import FAINT, mask_values
from picme_sdk.pixels.photo import U8, load, open_image
from picme_sdk.sheet import results_sheet
from picme_sdk.video.frames import SMOOTHING, complete_frames
from picme_sdk.video.stability import Meter, Stability
from picme_sdk.video.streams import ENCODERS, Reader, Writer

T = TypeVar("T")


@dataclass(frozen=True)
class VideoReport:
    """What was written, and how stable it is."""

    frames: int
    size: tuple[int, int]
    seconds: float
    stability: Stability
    dropped: list[str] = field(default_factory=list)  # streams that were not copied

    @property
    def speed(self) -> float:
        """Frames a second."""
        return self.frames / self.seconds

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"frames_per_second": self.speed}

    def __str__(self) -> str:
        stability = self.stability
        lines = [
            f"{self.frames} frames of {self.size[0]}x{self.size[1]} in {self.seconds:.1f} s, {self.speed:.1f} a second"
        ]
        lines += [f"not copied: {', '.join(self.dropped)}"] if self.dropped else []
        lines += ["mean change from one frame to the next inside the hole, of 255 levels:"]
        for name, change, pairs in (
            ("pinned", stability.pinned, stability.pairs),
            ("independent", stability.independent, stability.compared),
            ("source", stability.source, stability.pairs),
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
    force   replace `out`; otherwise an existing file raises `FileExists`
    done    called after each frame with the number of completed frames, and the total if the file states it

    The rest is as in `complete_frames`. Sound and subtitles are copied, not encoded again. Every frame keeps its time, also at variable rates.
    Rotated streams become upright. `out` appears when it is complete. `BackendUnavailable` if PyAV is missing; `BadVideo` for a file that
    can't be read or whose frames change their size.
    """
    source, out = Path(source), Path(out)
    if out.suffix.lower() not in ENCODERS:
        raise BadVideo(f"output {out}", f"a name that ends in {', '.join(ENCODERS)}", "choose another name")
    check_free(out, force)
    start = time.perf_counter()
    meter = Meter(completer)
    with Reader(source) as reader, replacing(out) as temporary:
        frames, masks = _Last(reader.frames()), _Last(_masks(Path(mask)))
        completed = complete_frames(completer, frames, masks, primitive, seed, temperature, smoothing)
        writer: Writer | None = None
        try:
            for frame in completed:
                writer = writer or Writer(temporary, out, reader, frame)
                writer.write(frame)
                meter.add(frames.last, masks.last, frame)
                done(meter.frames, reader.total)
            if writer is None:
                raise BadVideo(f"{source} has no frames", "at least one", "check the file")
            writer.close()
        finally:
            if writer is not None:
                writer.abandon()
        check_free(out, force)
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
    """A sheet of the first frame that has a hole: each primitive once, heaviest first, as `complete_video` would fill it."""
    with Reader(Path(source)) as reader:
        for frame, hole in zip(reader.frames(), _masks(Path(mask)), strict=False):
            if hole.max(initial=0) <= FAINT:
                continue
            photo = Image.fromarray(frame)
            scene = completer.encode(photo, hole)
            ideas = [scene.sample(1, seed, primitive=i, temperature=temperature)[0] for i, _ in scene.primitives]
            return results_sheet(photo, Image.fromarray(hole), ideas)
    raise BadMask(f"{mask} is empty on every frame of {source}", "a hole in at least one", "draw the hole")


class _Last(Iterator[T]):
    """An iterator that remembers its latest item."""

    last: T

    def __init__(self, items: Iterable[T]) -> None:
        self.items = iter(items)

    def __next__(self) -> T:
        self.last = next(self.items)
        return self.last


def _masks(path: Path) -> Iterator[U8]:
    """Masks [h, w] from a picture, repeated forever, or from a video."""
    try:
        picture = open_image(path, "mask")
    except UnknownImageFormat:
        pass  # a video, perhaps
    except PicmeError as error:
        raise BadMask(error.given, error.expected, error.cure) from error
    else:
        yield from repeat(mask_values(picture, load(picture)))
    try:
        with Reader(path) as reader:
            yield from reader.frames("gray")
    except BadVideo as error:
        formats = f"one of {', '.join(IMAGE_FORMATS)}, or a video"
        raise BadMask(f"mask {error.given}", formats, "convert it first") from error
