"""The cases of an evaluation: pictures with their holes and seeds. The same for every method, and the same for the same arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from picme_sdk.errors import BadArgument
from training.config import MaskMix
from training.data import Pictures, find_images, spread
from training.masks import MaskSource

KINDS = {
    "center": MaskMix(),
    "random": MaskMix(center=0, rectangles=1, strokes=1),
    "rectangles": MaskMix(center=0, rectangles=1),
    "strokes": MaskMix(center=0, strokes=1),
}
MAX_HOLE = 0.9  # share of the picture; a larger random mask leaves too little context and is drawn again
SEEDS = 1 << 32  # picture i of --seed s has the seed s * 2^32 + i


@dataclass(frozen=True)
class Case:
    """A photo uint8 [s, s, 3], its mask uint8 [s, s] with 255 = hole, and the seed for its results."""

    name: str  # NAME.png for a photo NAME.*
    kind: str  # of the mask
    photo: np.ndarray
    mask: np.ndarray
    seed: int


class Cases:
    """All pictures below `data`, or `count` of them spread over the set, each with a mask of one kind."""

    def __init__(self, data: Path, size: int, count: int | None = None, seed: int = 0) -> None:
        files = find_images(data)
        twice = [name for name, times in Counter(file.stem for file in files).items() if times > 1]
        if twice:
            raise BadArgument(
                f"{data}: {len(twice)} file names occur twice, such as {twice[0]}",
                "different names (without suffix), because results are stored by name",
                "rename them",
            )
        self.pictures = Pictures(files, size)
        self.size, self.seed = size, seed
        self.order = spread(len(files))[:count]

    def __len__(self) -> int:
        return len(self.order)

    def of(self, kind: str) -> Iterator[Case]:
        """Cases with masks of this kind: one of `KINDS`, or a folder of masks, light = hole."""
        source = self._source(kind)
        for number in self.order:
            photo, file = self.pictures[number]
            if file != self.pictures.files[number]:
                continue  # it can't be read (the log names it); the picture in its place is a case of its own
            random = np.random.default_rng([self.seed, 3, number])
            mask = source.draw(random)
            while not 0 < mask.mean() <= MAX_HOLE:
                mask = source.draw(random)
            yield Case(f"{file.stem}.png", Path(kind).name, photo, mask * np.uint8(255), self.seed * SEEDS + number)

    def _source(self, kind: str) -> MaskSource:
        if kind in KINDS:
            return MaskSource(KINDS[kind], self.size)
        folder = Path(kind)
        if not folder.is_dir():
            raise BadArgument(f"masks {kind!r}", f"{', '.join(KINDS)} or a folder of masks", "choose one of them")
        files = find_images(folder)
        for file in files:
            with Image.open(file) as picture:
                light = picture.convert("L").resize((self.size, self.size), Image.Resampling.BOX)
            share = float((np.asarray(light) >= 128).mean())
            if not 0 < share <= MAX_HOLE:
                raise BadArgument(f"{file}: hole on {share:.0%}", f"more than 0, at most {MAX_HOLE:.0%}", "remove it")
        return MaskSource(MaskMix(center=0, folder=1), self.size, files)
