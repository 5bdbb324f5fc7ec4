"""What every attack is made on: a completer, a photo with its mask, and a studio."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from picme_sdk import Completer
from tests.picme_sdk.studio.conftest import Server, start, stop
from tests.vectors.make import photo as formula

PHOTO = formula(64, 48)
MASK = np.zeros((48, 64), np.uint8)
MASK[16:32, 20:44] = 255


@pytest.fixture(scope="session")
def completer(bundle_folder: Path) -> Iterator[Completer]:
    with Completer(bundle_folder, "cpu", 1) as made:
        yield made


@pytest.fixture(scope="session")
def studio(bundle_folder: Path) -> Iterator[Server]:
    server = start(bundle_folder)
    yield server
    printed = stop(server)
    assert "Traceback" not in printed, printed
