"""Which pictures are trained on and which are held out: a rule, so that everybody gets the same lists from the same folders.

    python training/holdout.py --scenes DIR --photos DIR --out DIR [--exclude DIR]

writes lists of paths, one per line, for `--data` and `--valid`:

    scenes-train.txt    photos-train.txt     to train on
    scenes-choose.txt   photos-choose.txt    200 each, for choosing settings by numbers and sheets
    scenes-report.txt   photos-report.txt    200 each, for reporting only
    scenes-frechet.txt                       1,000 scenes for Frechet distances, which need many pictures

The rule: photographs are ordered by the SHA-256 of their name and taken from the front. Crops of one photograph (SOURCE_ID_0.jpg,
SOURCE_ID_1.jpg, ...) stay together; a held-out list keeps the first crop only. `--exclude` names pictures that documents show: pictures that look
the same (64-bit difference hashes at most 6 bits apart) are left out of all lists.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path

if not __package__:  # run as a file: the checkout is the import root, not this folder
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np
from PIL import Image

from picme_sdk.contract import IMAGE_FORMATS
from picme_sdk.errors import DataError, PicmeError
from picme_sdk.io import replacing
from training.data import find_images

CHOOSE = REPORT = 200
FRECHET = 1000
SAME_BITS = 6  # hashes that differ in at most this many bits are of the same picture


def photograph(file: Path) -> str:
    """The photograph that a file belongs to: its name without the number of the crop."""
    return re.sub(r"_\d+$", "", file.stem) if re.fullmatch(r"[a-z]+_[0-9a-f]{6,}_\d+", file.stem) else file.stem


def split(files: Sequence[Path], sizes: dict[str, int]) -> dict[str, list[Path]]:
    """Files by list: `sizes` photographs for each held-out name, in that order, and the rest as "train"."""
    groups: dict[str, list[Path]] = {}
    for file in sorted(files, key=lambda file: file.name):
        groups.setdefault(photograph(file), []).append(file)
    if len(groups) <= sum(sizes.values()):
        raise DataError(
            f"{len(groups)} photographs", f"more than the {sum(sizes.values())} to hold out", "give more pictures"
        )
    order = sorted(groups, key=lambda name: hashlib.sha256(name.encode()).digest())
    lists: dict[str, list[Path]] = {}
    for name, count in sizes.items():
        lists[name] = [groups[group][0] for group in order[:count]]
        order = order[count:]
    return lists | {"train": [file for group in sorted(order) for file in groups[group]]}


def difference_hash(file: Path) -> int | None:
    """64 bits: where brightness decreases from left to right on a 9x8 grid. None for a file that can't be read."""
    try:
        with Image.open(file, formats=IMAGE_FORMATS) as picture:
            picture.draft("L", (36, 32))
            small = np.asarray(picture.convert("L").resize((9, 8), Image.Resampling.BOX), np.int16)
    except Exception:  # Pillow's decoders raise many kinds of exceptions on damaged data; training skips such files
        return None
    return int.from_bytes(np.packbits(small[:, 1:] < small[:, :-1]).tobytes(), "big")


def without(files: Sequence[Path], shown: Sequence[Path]) -> list[Path]:
    """`files` less those that look like one of `shown`."""
    hashes = [number for file in shown if (number := difference_hash(file)) is not None]

    def is_shown(file: Path) -> bool:
        number = difference_hash(file)
        return number is not None and any((number ^ other).bit_count() <= SAME_BITS for other in hashes)

    return [file for file in files if not is_shown(file)]


def main() -> int:
    parser = argparse.ArgumentParser(description="write the lists of pictures to train on and to hold out")
    parser.add_argument("--scenes", type=Path, required=True, help="folder of everyday scenes")
    parser.add_argument("--photos", type=Path, required=True, help="folder of sharp photographs or crops of them")
    parser.add_argument("--out", type=Path, required=True, help="folder for the lists")
    parser.add_argument("--exclude", type=Path, help="folder of pictures that documents show")
    options = parser.parse_args()
    held = {"choose": CHOOSE, "report": REPORT}
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        for name, sizes in (("scenes", held | {"frechet": FRECHET}), ("photos", held)):
            files = [file.resolve() for file in find_images(getattr(options, name))]
            kept = without(files, find_images(options.exclude)) if options.exclude else files
            for part, chosen in split(kept, sizes).items():
                path = options.out / f"{name}-{part}.txt"
                with replacing(path) as temporary:
                    temporary.write_text("".join(f"{file}\n" for file in chosen))
                print(f"{len(chosen):7} {path}")
            print(f"{len(files) - len(kept):7} {name} left out because documents show them")
    except (PicmeError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
