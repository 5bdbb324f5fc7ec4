"""Pictures for training: folders, file lists, the layouts of known data sets, and batches that a seed repeats.

Item number t of a run (its picture, flip, mask and crop) is a pure function of (seed, t), whatever the batch size, the number
of processes, or how often the run was interrupted.
"""

from __future__ import annotations

import io
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from picme_sdk.contract import IMAGE_FORMATS, IMAGE_SUFFIXES
from training.masks import MaskSource

log = logging.getLogger(__name__)

CACHE_BYTES = 4 << 30  # decoded pictures are kept in memory when all of them fit in this


class DataError(ValueError):
    """The pictures cannot be used as given."""


def find_images(where: Path) -> list[Path]:
    """Pictures below a folder, recursively, or those named by a text file (one path a line, relative to that file)."""
    if where.is_dir():
        files = sorted(path for path in where.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file())
    elif where.is_file():
        lines = [line.strip() for line in where.read_text().splitlines()]
        files = [where.parent / line for line in lines if line and not line.startswith("#")]
    else:
        raise DataError(f"{where} | expected a folder of pictures or a list of them, found nothing | check the path")
    if not files:
        looked = ", ".join(IMAGE_SUFFIXES)
        raise DataError(f"{where} | expected pictures ({looked}), found none | check the path")
    return files


@dataclass(frozen=True)
class Preset:
    """How people keep a data set on disk: the first folder that exists is taken; then every `keep`-th rule by number."""

    train: tuple[str, ...]  # folders below --data, tried in order
    valid: tuple[str, ...]
    # For sets without folders of their own: is picture number i of n (sorted by path) a training picture?
    is_train: Callable[[int, int], bool] | None = None


PRESETS = {
    # 30,000 faces; train/ and val/ where a packager split them, else one folder of which the last 2,000 validate.
    "celeba-hq": Preset(("train", "CelebA-HQ-img", "images", "."), ("val", "valid", "test", "CelebA-HQ-img", "images", "."), lambda i, n: i < n - 2000),
    # 70,000 faces; the authors' convention: the first 60,000 train, the last 10,000 validate.
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
        raise DataError(f"preset {name!r} | expected one of {sorted(PRESETS)} | or give a plain folder")
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
    raise DataError(
        f"{root} as {name} {split} | expected one of the folders {list(folders)} | check --data and --preset"
    )


def find_all(sources: Sequence[str]) -> list[Path]:
    """Pictures of several folders or lists; `WHERE*3` counts each of its pictures three times, so a small set is seen more often."""
    files: list[Path] = []
    for source in sources:
        where, star, times = source.rpartition("*")
        if star and times.isdecimal() and int(times) > 0:
            files += find_images(Path(where)) * int(times)
        else:
            files += find_images(Path(source))
    return files


def square(picture: Image.Image, size: int) -> np.ndarray:
    """Upright, RGB, the largest centred square, `size` pixels a side: uint8 [s, s, 3]."""
    picture = ImageOps.exif_transpose(picture)
    if picture.mode.startswith("I;16"):  # Pillow would clip 16 bits to 8 instead of scaling them
        picture = Image.fromarray((np.asarray(picture, np.uint16) >> 8).astype(np.uint8))
    if picture.mode != "RGB":
        picture = picture.convert("RGB")
    return np.asarray(ImageOps.fit(picture, (size, size), Image.Resampling.LANCZOS))


def closer(picture: np.ndarray, size: int, nearest: float, random: np.random.Generator) -> np.ndarray:
    """Half of the time the whole picture, else a random square of it, brought to `size`: its side is between `nearest`
    and 1 as a share of the picture's."""
    share = min(float(random.uniform(nearest, 2 - nearest)), 1.0)
    if share == 1 and len(picture) == size:
        return picture
    side = len(picture) * share
    left, top = (float(start) for start in random.uniform(0, len(picture) - side, 2))
    box = left, top, left + side, top + side
    return np.asarray(Image.fromarray(picture).resize((size, size), Image.Resampling.BICUBIC, box=box))


def recoloured(picture: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """The same picture as another camera might have saved it: slightly other exposure, contrast and white balance, and in one of five
    cases a JPEG of quality 40 to 95. Users' photos differ from data sets in just that."""
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
    """Decoded squares by index: `size` pixels a side, or with `larger` up to an eighth more where the file has them, for
    crops that need no enlarging. A file that can't be read or is tiny is skipped: counted, named in the log, and its
    place taken by the next good one. Safe to use from several threads."""

    def __init__(self, files: Sequence[Path], size: int, larger: bool = False) -> None:
        self.files = list(files)
        self.size, self.larger = size, larger
        self.smallest = max(16, size // 4)
        self.bad: set[int] = set()
        fits = len(set(self.files)) * (size * 9 // 8) ** 2 * 3 <= CACHE_BYTES
        self._cache: dict[Path, np.ndarray] | None = {} if fits else None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.files)

    def _read(self, index: int) -> np.ndarray | None:
        try:
            with Image.open(self.files[index], formats=IMAGE_FORMATS) as picture:
                if min(picture.size) < self.smallest:
                    raise DataError(
                        f"{picture.size[0]}x{picture.size[1]} pixels, expected at least {self.smallest} a side"
                    )
                wanted = min(self.size * 9 // 8, max(self.size, *picture.size)) if self.larger else self.size
                picture.draft("RGB", (wanted, wanted))
                return square(picture, max(self.size, min(wanted, *picture.size)) if self.larger else self.size)
        except Exception as error:  # Pillow's decoders raise many kinds on damaged data
            with self._lock:
                self.bad.add(index)
                log.warning("skipped %s (%d skipped so far): %s", self.files[index], len(self.bad), error)
            return None

    def __getitem__(self, index: int) -> tuple[np.ndarray, Path]:
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
        raise DataError(f"{len(self.files)} files | expected at least one readable picture | see the log for each")


@dataclass(frozen=True)
class Batch:
    """Pictures float [b, 3, s, s] in [-1, 1], masks float [b, 1, s, s] with 1 = hole, and the files they came from."""

    image: Tensor
    mask: Tensor
    files: tuple[Path, ...]

    def to(self, device: torch.device) -> Batch:
        return Batch(self.image.to(device), self.mask.to(device), self.files)


def to_batch(pictures: Sequence[np.ndarray], masks: Sequence[np.ndarray], files: Sequence[Path]) -> Batch:
    image = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float().div(127.5).sub(1)
    mask = torch.from_numpy(np.stack(masks)).float()[:, None]
    return Batch(image.contiguous(memory_format=torch.channels_last), mask, tuple(files))


class TrainingStream:
    """Items of the endless training sequence; every epoch is a fresh shuffle. `nearest` is explained in `closer`, `recolour` in
    `recoloured`."""

    def __init__(
        self, pictures: Pictures, masks: MaskSource, seed: int, nearest: float = 1.0, recolour: bool = False
    ) -> None:
        self.pictures, self.masks, self.seed, self.nearest, self.recolour = pictures, masks, seed, nearest, recolour
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0))

    def batch(self, start: int, count: int) -> Batch:
        """Items start .. start + count."""
        pictures, masks, files = [], [], []
        for item in range(start, start + count):
            epoch, position = divmod(item, len(self.pictures))
            if self._order[0] != epoch:
                self._order = (epoch, np.random.default_rng([self.seed, 1, epoch]).permutation(len(self.pictures)))
            picture, file = self.pictures[int(self._order[1][position])]
            random = np.random.default_rng([self.seed, 2, item])
            turned = picture[:, ::-1] if random.uniform() < 0.5 else picture
            masks.append(self.masks.draw(random))
            if self.nearest < 1 or len(turned) != self.pictures.size:
                turned = closer(turned, self.pictures.size, self.nearest, random)
            pictures.append(recoloured(turned, random) if self.recolour else turned)
            files.append(file)
        return to_batch(pictures, masks, files)
