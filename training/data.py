"""Pictures for training: folders, file lists, the layouts of known data sets, and batches that a seed reproduces.

Item number t of a run (its picture, flip, mask and crop) is a pure function of (seed, t), whatever the batch size, the number
of processes, or how often the run was interrupted.
"""

from __future__ import annotations

import io
import logging
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageOps
from torch import Tensor

from picme_sdk.contract import IMAGE_FORMATS, IMAGE_SUFFIXES
from picme_sdk.errors import DataError
from training.masks import MaskSource

log = logging.getLogger(__name__)

Pixels = npt.NDArray[np.uint8]

CACHE_BYTES = 4 << 30  # decoded pictures stay in memory if all of them fit into this


def find_images(where: Path) -> list[Path]:
    """Pictures below a folder, recursively, or those that a text file lists (one path per line, relative to that file)."""
    if where.is_dir():
        files = sorted(path for path in where.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file())
    elif where.is_file():
        lines = [line.strip() for line in where.read_text().splitlines()]
        files = [where.parent / line for line in lines if line and not line.startswith("#")]
    else:
        raise DataError(f"{where}, which does not exist", "a folder of pictures or a list of them", "check the path")
    if not files:
        suffixes = ", ".join(IMAGE_SUFFIXES)
        raise DataError(f"{where} without pictures", f"pictures ({suffixes})", "check the path")
    return files


@dataclass(frozen=True)
class Preset:
    """The usual layout of a data set on disk. The first folder that exists is used."""

    train: tuple[str, ...]  # folders below --data, tried in order
    valid: tuple[str, ...]
    # For sets without a folder per split: is picture number i of n (sorted by path) a training picture?
    is_train: Callable[[int, int], bool] | None = None


PRESETS = {
    # 30,000 faces; train/ and val/ where a packager split them, else one folder whose last 2,000 are the validation split.
    "celeba-hq": Preset(("train", "CelebA-HQ-img", "images", "."), ("val", "valid", "test", "CelebA-HQ-img", "images", "."), lambda i, n: i < n - 2000),
    # 70,000 faces; by the authors' convention the first 60,000 are for training, the last 10,000 for validation.
    "ffhq": Preset(("images1024x1024", "images256x256", "thumbnails128x128", "."), ("images1024x1024", "images256x256", "thumbnails128x128", "."), lambda i, n: i < n * 6 // 7),
    # 14,900 street views; 100 of them for evaluation.
    "paris-streetview": Preset(("paris_train_original", "train"), ("paris_eval_gt", "paris_eval", "val", "test")),
    # data_large/a/abbey/00000001.jpg (high resolution) or data_256/...; val_large or val_256.
    "places2": Preset(("data_large", "data_large_standard", "data_256", "data_256_standard", "train"), ("val_large", "val_256", "val")),
    # train/n01440764/*.JPEG, as torchvision and the original archives unpack.
    "imagenet": Preset(("ILSVRC/Data/CLS-LOC/train", "ILSVRC2012_img_train", "train"), ("ILSVRC/Data/CLS-LOC/val", "ILSVRC2012_img_val", "val")),
}  # fmt: skip


def find_preset(name: str, root: Path, split: str = "train") -> list[Path]:
    """Pictures of a known data set's `train` or `valid` split below `root`."""
    if name not in PRESETS:
        raise DataError(f"preset {name!r}", f"one of {sorted(PRESETS)}", "choose one, or give a plain folder")
    preset = PRESETS[name]
    folders = preset.train if split == "train" else preset.valid
    for folder in folders:
        if not (root / folder).is_dir():
            continue
        files = find_images(root / folder)
        own_split = (root / preset.train[0]).is_dir() and folder in ("train", "val", "valid", "test")
        if preset.is_train is None or own_split:
            return files
        return [f for i, f in enumerate(files) if preset.is_train(i, len(files)) == (split == "train")]
    raise DataError(f"{root} as {name} {split}", f"one of the folders {list(folders)}", "check --data and --preset")


def find_all(sources: Sequence[str]) -> list[Path]:
    """Pictures of several folders or lists; `WHERE*3` repeats each of its pictures three times, to give a small set more weight."""
    files: list[Path] = []
    for source in sources:
        where, star, times = source.rpartition("*")
        if star and times.isdecimal() and int(times) > 0:
            files += find_images(Path(where)) * int(times)
        else:
            files += find_images(Path(source))
    return files


def spread(count: int) -> Sequence[int]:
    """0 .. count - 1 in an order whose beginning is spread over the whole range, so that neighbours (often of one breed) are far apart."""
    stride = next(s for s in range(int(0.618 * count) + 1, 2 * count + 2) if math.gcd(s, count) == 1)
    return [i * stride % count for i in range(count)]


def square(picture: Image.Image, size: int) -> Pixels:
    """Upright, RGB, the largest centred square, scaled to `size`: uint8 [s, s, 3]."""
    picture = ImageOps.exif_transpose(picture)
    if picture.mode.startswith("I;16"):  # Pillow would clip 16 bits to 8 instead of scaling them
        picture = Image.fromarray((np.asarray(picture, np.uint16) >> 8).astype(np.uint8))
    if picture.mode != "RGB":
        picture = picture.convert("RGB")
    return np.asarray(ImageOps.fit(picture, (size, size), Image.Resampling.LANCZOS))


def random_crop(picture: Pixels, size: int, min_crop: float, random: np.random.Generator) -> Pixels:
    """Half of the time the whole picture, otherwise a random square of it, scaled to `size`: its side is between `min_crop`
    and 1 as a share of the picture's."""
    share = min(float(random.uniform(min_crop, 2 - min_crop)), 1.0)
    if share == 1 and len(picture) == size:
        return picture
    side = len(picture) * share
    left, top = (float(start) for start in random.uniform(0, len(picture) - side, 2))
    box = left, top, left + side, top + side
    return np.asarray(Image.fromarray(picture).resize((size, size), Image.Resampling.BICUBIC, box=box))


def jittered(picture: Pixels, random: np.random.Generator) -> Pixels:
    """The same picture as another camera might have saved it: slightly different exposure, contrast and white balance, and in one of five
    cases a JPEG of quality 40 to 95. Users' photos differ from data sets in these ways."""
    levels = np.arange(256, dtype=np.float32)[:, None] / 255
    levels = levels ** float(np.exp(random.normal(0, 0.12))) * np.exp(random.normal(0, 0.03, 3)).astype(np.float32)
    contrast = float(np.exp(random.normal(0, 0.08)))
    table = np.clip((levels - 0.5) * contrast + 0.5, 0, 1) * 255
    table = table.round().astype(np.uint8)
    picture = np.stack([table[:, i][picture[..., i]] for i in range(3)], -1)
    if random.uniform() < 0.2:
        buffer = io.BytesIO()
        Image.fromarray(picture).save(buffer, "JPEG", quality=int(random.integers(40, 96)))
        picture = np.asarray(Image.open(buffer))
    return picture


class Pictures:
    """Decoded squares by index: `size` pixels a side, or with `larger` up to an eighth more where the file is large enough, for
    crops that need not be enlarged. A file that can't be read or is tiny is skipped: it is counted, named in the log and replaced by
    the next good one. Safe to use from several threads."""

    def __init__(self, files: Sequence[Path], size: int, larger: bool = False) -> None:
        self.files = list(files)
        self.size, self.larger = size, larger
        self.smallest = max(16, size // 4)
        self.bad: set[int] = set()
        fits = len(set(self.files)) * (size * 9 // 8) ** 2 * 3 <= CACHE_BYTES
        self._cache: dict[Path, Pixels] | None = {} if fits else None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.files)

    def _read(self, index: int) -> Pixels | None:
        try:
            with Image.open(self.files[index], formats=IMAGE_FORMATS) as picture:
                if min(picture.size) < self.smallest:
                    raise DataError(
                        f"{picture.size[0]}x{picture.size[1]} pixels", f"at least {self.smallest} a side", "remove it"
                    )
                wanted = min(self.size * 9 // 8, max(self.size, *picture.size)) if self.larger else self.size
                picture.draft("RGB", (wanted, wanted))
                return square(picture, max(self.size, min(wanted, *picture.size)) if self.larger else self.size)
        except Exception as error:  # Pillow's decoders raise many kinds of exceptions on damaged data
            with self._lock:
                self.bad.add(index)
                log.warning("skipped %s (%d skipped so far): %s", self.files[index], len(self.bad), error)
            return None

    def __getitem__(self, index: int) -> tuple[Pixels, Path]:
        for candidate in range(index, index + len(self.files)):
            candidate %= len(self.files)
            file = self.files[candidate]
            if self._cache is not None and file in self._cache:
                return self._cache[file], file
            if candidate in self.bad:
                continue
            picture = self._read(candidate)
            if picture is not None:
                if self._cache is not None:
                    self._cache[file] = picture
                return picture, file
        raise DataError(f"{len(self.files)} files", "at least one readable picture", "the log has the reason for each")


@dataclass(frozen=True)
class Batch:
    """Pictures float [b, 3, s, s] in [-1, 1], masks float [b, 1, s, s] with 1 = hole, and the files they came from."""

    image: Tensor
    mask: Tensor
    files: tuple[Path, ...]

    def to(self, device: torch.device) -> Batch:
        return Batch(self.image.to(device), self.mask.to(device), self.files)

    def first(self, count: int) -> Batch:
        return Batch(self.image[:count], self.mask[:count], self.files[:count])


def to_batch(pictures: Sequence[Pixels], masks: Sequence[Pixels], files: Sequence[Path]) -> Batch:
    """uint8 pictures [s, s, 3] and masks [s, s] -> one batch."""
    image = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float().div(127.5).sub(1)
    mask = torch.from_numpy(np.stack(masks)).float()[:, None]
    return Batch(image.contiguous(memory_format=torch.channels_last), mask, tuple(files))


class TrainingStream:
    """Items of the endless training sequence; every epoch has a new order. `random_crop` explains `min_crop`, `jittered` what
    `jitter` does."""

    def __init__(
        self, pictures: Pictures, masks: MaskSource, seed: int, min_crop: float = 1.0, jitter: bool = False
    ) -> None:
        self.pictures, self.masks, self.seed, self.min_crop, self.jitter = pictures, masks, seed, min_crop, jitter
        self._order: tuple[int, npt.NDArray[np.int64]] = (-1, np.empty(0, np.int64))

    def batch(self, start: int, count: int) -> Batch:
        """Items start .. start + count."""
        pictures, masks, files = [], [], []
        for item in range(start, start + count):
            epoch, position = divmod(item, len(self.pictures))
            if self._order[0] != epoch:
                self._order = (epoch, np.random.default_rng([self.seed, 1, epoch]).permutation(len(self.pictures)))
            picture, file = self.pictures[int(self._order[1][position])]
            random = np.random.default_rng([self.seed, 2, item])
            picture = picture[:, ::-1] if random.uniform() < 0.5 else picture
            masks.append(self.masks.draw(random))
            if self.min_crop < 1 or len(picture) != self.pictures.size:
                picture = random_crop(picture, self.pictures.size, self.min_crop, random)
            pictures.append(jittered(picture, random) if self.jitter else picture)
            files.append(file)
        return to_batch(pictures, masks, files)
