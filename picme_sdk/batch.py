"""A folder of photos through one completer: a bad file never stops the others, nothing is overwritten, every file is reported."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

from picme_sdk.completer import Completer
from picme_sdk.contract import (
    DEFAULT_BATCH_RESULTS,
    DEFAULT_STRATEGY,
    DEFAULT_TEMPERATURE,
    IMAGE_SUFFIXES,
    Strategy,
)
from picme_sdk.errors import BadMask, describe
from picme_sdk.pixels.mask import MaskLike
from picme_sdk.pixels.png import save_png
from picme_sdk.scene import Completion, Scene

WORKERS = 3  # for a completer that uses all cores: one photo is computed while others are read and written
MAX_NAME_BYTES = 200  # file systems accept 255


@dataclass(frozen=True)
class Sampling:
    """What each photo gets; see `Scene.sample`."""

    n: int = DEFAULT_BATCH_RESULTS
    seed: int = 0
    strategy: Strategy = DEFAULT_STRATEGY
    temperature: float = DEFAULT_TEMPERATURE

    def of(self, scene: Scene) -> list[Completion]:
        return scene.sample(self.n, self.seed, self.strategy, None, self.temperature)


@dataclass(frozen=True)
class Folder:
    """Where results go and masks come from."""

    out: Path
    mask: Path | None  # one file for all, a folder with a mask of the same name for each, or None: transparent pixels


@dataclass(frozen=True)
class PhotoReport:
    """The outcome of one photo."""

    photo: str
    state: str  # "done", "skipped" (its results exist) or "failed"
    error: str = ""
    ambiguity: float = 0.0
    seconds: float = 0.0
    results: list[dict[str, Any]] = field(default_factory=list)  # file, primitive, weight, log_density, token

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def is_photo(name: str) -> bool:
    """Whether a file name is one that a batch takes: not hidden, and of a known suffix."""
    return Path(name).suffix.lower() in IMAGE_SUFFIXES and not name.startswith(".")


def photos_in(folder: Path) -> list[Path]:
    """Pictures of a folder, not of its subfolders, by name."""
    return sorted(path for path in folder.iterdir() if is_photo(path.name) and path.is_file())


def result_path(out: Path, photo: Path, number: int) -> Path:
    """a.jpg -> OUT/a.jpg-1.png, so that a.jpg and a.png never collide. Very long names are cut and made unique by a hash."""
    name = photo.name
    if len(os.fsencode(name)) > MAX_NAME_BYTES:
        digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:12]
        name = os.fsdecode(os.fsencode(name)[: MAX_NAME_BYTES - 13].decode("utf-8", "ignore").encode()) + f"-{digest}"
    return out / f"{name}-{number}.png"


def mask_names(photo: str) -> list[str]:
    """Names under which a folder may hold a photo's mask, the first one preferred."""
    return [photo, *(f"{Path(photo).stem}{suffix}" for suffix in IMAGE_SUFFIXES)]


def no_mask(photo: str, folder: object) -> BadMask:
    expected = f"{Path(photo).stem}.png or the photo's own name"
    return BadMask(f"no mask for {photo} in {folder}", expected, "add it")


def mask_for(photo: Path, mask: Path | None) -> MaskLike:
    if mask is None or mask.is_file():
        return mask
    for name in mask_names(photo.name):
        if (mask / name).is_file():
            return mask / name
    raise no_mask(photo.name, mask)


def complete_one(completer: Completer, photo: Path, folder: Folder, sampling: Sampling) -> PhotoReport:
    """Complete one file; every expected fault becomes a report."""
    start = time.perf_counter()
    targets = [result_path(folder.out, photo, i + 1) for i in range(sampling.n)]
    if all(target.exists() for target in targets):
        return PhotoReport(photo.name, "skipped")
    try:
        scene = completer.encode(photo, mask_for(photo, folder.mask))
        results = []
        for target, result in zip(targets, sampling.of(scene), strict=True):
            if not target.exists():
                image = result.image
                assert isinstance(image, Image.Image)  # noqa: S101 (a path gives a PIL image)
                save_png(image, target, result.token)
            results.append({"file": target.name, "primitive": result.primitive, "weight": result.weight,
                            "log_density": result.log_density, "token": result.token})  # fmt: skip
    except Exception as error:  # whatever one file does, the others go on
        return PhotoReport(photo.name, "failed", describe(error), seconds=time.perf_counter() - start)
    return PhotoReport(photo.name, "done", "", scene.ambiguity, time.perf_counter() - start, results)


def run_batch(
    completer: Completer,
    photos: Iterable[Path],
    folder: Folder,
    sampling: Sampling,
    done: Callable[[PhotoReport], None],
    at_once: int = WORKERS,
) -> list[PhotoReport]:
    """Complete photos, `at_once` of them side by side; `done` is called as each is finished. At most twice as many are in memory."""
    folder.out.mkdir(parents=True, exist_ok=True)
    reports: list[PhotoReport] = []
    waiting: set[Future[PhotoReport]] = set()

    def collect(finished: Iterable[Future[PhotoReport]]) -> None:
        for future in finished:
            reports.append(future.result())
            done(reports[-1])

    with ThreadPoolExecutor(at_once) as pool:
        try:
            for photo in photos:
                waiting.add(pool.submit(complete_one, completer, photo, folder, sampling))
                if len(waiting) >= 2 * at_once:
                    finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                    collect(finished)
            collect(waiting)
        except KeyboardInterrupt:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return sorted(reports, key=lambda report: report.photo)


def watch(folder: Path, stop: threading.Event, every: float = 1.0) -> Iterator[Path]:
    """Photos that are in a folder or arrive in it, once each, when their size has stopped changing; until `stop` is set."""
    sizes: dict[Path, int] = {}
    given: set[Path] = set()
    while not stop.is_set():
        for photo in photos_in(folder):
            try:
                size = photo.stat().st_size
            except OSError:
                continue
            if photo not in given and size > 0 and sizes.get(photo) == size:
                given.add(photo)
                yield photo
            sizes[photo] = size
        stop.wait(every)
