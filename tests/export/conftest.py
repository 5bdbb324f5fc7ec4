"""The graphs of the exported tiny model."""

from pathlib import Path

import onnx
import pytest

from picme_sdk.contract import GRAPHS


@pytest.fixture(scope="module")
def graphs(exported_folder: Path) -> dict[str, onnx.ModelProto]:
    return {name: onnx.load(exported_folder / f"{name}.onnx") for name in GRAPHS}
