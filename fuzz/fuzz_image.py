"""Picture files: every input is tried as a photo, as its own mask, and as an upload to the studio."""

import contextlib
import io

from PIL import Image

from fuzz.fill import centre, fill
from picme_sdk.contract import IMAGE_FORMATS, MAX_PIXELS
from picme_sdk.errors import PicmeError
from picme_sdk.pixels.photo import load
from picme_sdk.studio.pictures import read_hole, read_photo, to_text

# Larger pictures only take longer, so they are left out, up to the limit above which they are refused anyway.
FEW_PIXELS = 1 << 18


def is_slow(data: bytes) -> bool:
    with contextlib.suppress(Exception), Image.open(io.BytesIO(data), formats=IMAGE_FORMATS) as picture:
        return FEW_PIXELS < picture.width * picture.height <= MAX_PIXELS
    return False


def check(data: bytes) -> None:
    if is_slow(data):
        return
    for attempt in (
        lambda: fill(data, centre(*load(data).size)),
        lambda: fill(load(data).pixels, data),
        lambda: read_hole(read_photo(to_text(data)), to_text(data)),
    ):
        try:
            attempt()
        except PicmeError as error:
            str(error).encode()
