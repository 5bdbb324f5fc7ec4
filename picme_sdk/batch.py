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
from picme_sdk.errors import BadMask, PicmeError
from picme_sdk.imaging import save_png
from picme_sdk.masks import MaskLike

WORKERS = 3  # for a completer that uses all cores: one photo is computed while others are read and written
LONGEST_NAME = 200  # bytes; file systems take 255


@dataclass(frozen=True)
class Job:
    """What to do with each photo."""

    out: Path
    mask: Path | None  # one file for all, a folder with a mask of the same name for each, or None: transparent pixels
    n: int = DEFAULT_BATCH_RESULTS
    seed: int = 0
    strategy: Strategy = DEFAULT_STRATEGY
    temperature: float = DEFAULT_TEMPERATURE


@dataclass(frozen=True)
class Report:
    """What became of one photo."""

    photo: str
    state: str  # "done", "skipped" (its results exist) or "failed"
    error: str = ""
    ambiguity: float = 0.0
    seconds: float = 0.0
    results: list[dict[str, Any]] = field(default_factory=list)  # file, primitive, weight, log_prob, token

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def photos_in(folder: Path) -> list[Path]:
    """Pictures of a folder, not of its subfolders, by name."""
    return sorted(
        p for p in folder.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES and not p.name.startswith(".") and p.is_file()
    )


def result_path(out: Path, photo: Path, number: int) -> Path:
    """a.jpg -> OUT/a.jpg-1.png: a.jpg and a.png never meet, and very long names are cut and told apart by a hash."""
    name = photo.name
    if len(os.fsencode(name)) > LONGEST_NAME:
        digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:12]
        name = os.fsdecode(os.fsencode(name)[: LONGEST_NAME - 13].decode("utf-8", "ignore").encode()) + f"-{digest}"
    return out / f"{name}-{number}.png"


def mask_for(photo: Path, mask: Path | None) -> MaskLike:
    if mask is None or mask.is_file():
        return mask
    found = [
        path for path in (mask / photo.name, *(mask / f"{photo.stem}{s}" for s in IMAGE_SUFFIXES)) if path.is_file()
    ]
    if not found:
        raise BadMask(f"no mask for {photo.name} in {mask}", f"{photo.stem}.png or the photo's own name", "add it")
    return found[0]


def complete_one(completer: Completer, photo: Path, job: Job) -> Report:
    """Complete one file; every expected fault becomes a report."""
    start = time.perf_counter()
    targets = [result_path(job.out, photo, i + 1) for i in range(job.n)]
    if all(target.exists() for target in targets):
        return Report(photo.name, "skipped")
    try:
        scene = completer.encode(photo, mask_for(photo, job.mask))
        results = []
        for target, result in zip(
            targets, scene.sample(job.n, job.seed, job.strategy, None, job.temperature), strict=True
        ):
            if not target.exists():
                image = result.image
                assert isinstance(image, Image.Image)  # noqa: S101 (a path gives a PIL image)
                save_png(image, target, result.token)
            results.append({"file": target.name, "primitive": result.primitive, "weight": result.weight,
                            "log_prob": result.log_prob, "token": result.token})  # fmt: skip
    except Exception as error:  # whatever one file does, the others go on
        told = str(error) if isinstance(error, (PicmeError, OSError)) else f"{type(error).__name__}: {error}"
        return Report(photo.name, "failed", told, seconds=time.perf_counter() - start)
    return Report(photo.name, "done", "", scene.ambiguity, time.perf_counter() - start, results)


def run_batch(
    completer: Completer, photos: Iterable[Path], job: Job, done: Callable[[Report], None], at_once: int = WORKERS
) -> list[Report]:
    """Complete photos, `at_once` of them side by side; `done` is called as each is finished. Holds twice as many in memory, not all."""
    job.out.mkdir(parents=True, exist_ok=True)
    reports: list[Report] = []
    waiting: set[Future[Report]] = set()

    def collect(finished: Iterable[Future[Report]]) -> None:
        for future in finished:
            reports.append(future.result())
            done(reports[-1])

    with ThreadPoolExecutor(at_once) as pool:
        try:
            for photo in photos:
                waiting.add(pool.submit(complete_one, completer, photo, job))
                if len(waiting) >= 2 * at_once:
                    finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                    collect(finished)
            collect(waiting)
        except KeyboardInterrupt:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return sorted(reports, key=lambda report: report.photo)


def watch(folder: Path, stop: threading.Event, every: float = 1.0) -> Iterator[Path]:
    """Photos that are in a folder or come into it, once each, when their size has stopped changing; until `stop` is set."""
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
