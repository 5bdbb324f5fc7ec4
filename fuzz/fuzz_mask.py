"""Arrays: photos and masks of any type, shape and content. The first bytes choose those, the rest are the values."""

import numpy as np

from fuzz.fill import fill
from picme_sdk.errors import PicmeError

TYPES = ("u1", "?", "u2", ">u2", "f4", "f2", "f8", "i1", "i4", "u8", ">f4", "c8", "O", "S3", "M8[s]")
CHANNELS = (0, 1, 2, 3, 4, 5)  # 0: no third axis
HEAD = 7


def array(kind: int, channels: int, width: int, height: int, values: bytes) -> np.ndarray:
    """The values, repeated until there are enough; most floats are moved into the range 0 to 1."""
    dtype = np.dtype(TYPES[kind % len(TYPES)])
    depth = CHANNELS[channels % len(CHANNELS)]
    shape = (height, width, depth) if depth else (height, width)
    count = int(np.prod(shape))
    if dtype.hasobject:
        return np.full(shape, values, dtype)
    raw = np.resize(np.frombuffer(values or b"\0", np.uint8), count * dtype.itemsize)
    made = np.frombuffer(raw.tobytes(), dtype).reshape(shape)
    if dtype.kind == "f" and kind < 128:
        with np.errstate(all="ignore"):
            made = np.abs(np.modf(made)[0])
    return made


def check(data: bytes) -> None:
    photo_kind, mask_kind, channels, width, height, mask_height, context = data[:HEAD].ljust(HEAD, b"\0")
    values = data[HEAD:]
    width, height = width % 96, height % 96
    photo = array(photo_kind, channels, width, height, values[::-1])
    mask = array(mask_kind, channels >> 4, width, height if mask_height < 250 else mask_height, values)
    for hole in (mask, None):
        try:
            fill(photo, hole, context or None)
        except PicmeError as error:
            str(error).encode()
