"""The graphs of the tiny bundle."""

from pathlib import Path

import onnx
import pytest

from picme_sdk.manifest import GRAPHS


@pytest.fixture(scope="module")
def graphs(bundle_folder: Path) -> dict[str, onnx.ModelProto]:
    return {name: onnx.load(bundle_folder / f"{name}.onnx") for name in GRAPHS}
