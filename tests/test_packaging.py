"""The package from outside: what importing costs, what the wheel holds, what the documents promise."""

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT


def python(code: str, *flags: str) -> str:
    return subprocess.run(
        [sys.executable, *flags, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout


def test_importing_is_cheap_and_brings_neither_torch_nor_numpy() -> None:
    code = "import time, sys, json; t = time.perf_counter(); import picme_sdk; print(json.dumps([time.perf_counter() - t, sorted(sys.modules)]))"
    seconds, modules = json.loads(python(code))
    assert seconds < 0.1
    assert not {"torch", "numpy", "PIL", "onnxruntime"} & set(modules)


def test_the_completer_needs_no_torch_and_little_memory() -> None:
    code = (
        "import resource, sys, numpy; before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss;"
        "from picme_sdk import Completer; after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss;"
        "print('torch' in sys.modules, 'onnxruntime' in sys.modules, after - before)"
    )
    torch, runtime, kilobytes = python(code).split()
    assert (torch, runtime) == ("False", "False")
    assert int(kilobytes) < 40_000


def test_every_module_imports_without_a_back_end() -> None:
    """As in an environment with numpy and pillow only."""
    modules = [
        ".".join(p.relative_to(ROOT).with_suffix("").parts)
        for p in (ROOT / "picme_sdk").rglob("*.py")
        if p.stem != "__init__"
    ]
    blocked = [
        "onnxruntime",
        "torch",
        "onnx",
        "tensorrt",
        "tensorrt_rtx",
        "cuda",
        "pycuda",
        "rich",
        "polygraphy",
        "safetensors",
    ]
    code = f"""
import importlib, sys
for name in {blocked}: sys.modules[name] = None
for name in {modules}: importlib.import_module(name)
from picme_sdk.cli import parser
parser().format_help()
"""
    python(code)


def test_a_missing_back_end_names_the_pip_line(bundle_folder: Path) -> None:
    code = f"""
import sys
sys.modules["onnxruntime"] = None
from picme_sdk import Completer
from picme_sdk.errors import BackendUnavailable
try:
    Completer({str(bundle_folder)!r})
except BackendUnavailable as error:
    print(error)
"""
    assert "pip install 'picme-sdk[cpu]'" in python(code)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(folder),
        str(ROOT),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_the_runtime_only(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"picme_sdk"}
    expected = ["py.typed", "samples/chelsea.jpg", "studio/page/index.html", "studio/openapi.json"]
    assert {f"picme_sdk/{name}" for name in expected} <= set(names)


def test_readme_links_and_commands_exist() -> None:
    for document in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = document.read_text()
        for link in re.findall(r"\]\(([^)#]+)\)", text):
            assert (document.parent / link).exists(), f"{document.name}: {link}"
    readme = (ROOT / "README.md").read_text()
    targets = set(re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"make ([\w-]+)", readme)) <= targets


def test_python_examples_of_the_readme_run(bundle_folder: Path, tmp_path: Path) -> None:
    """With the tiny bundle in the place of the shipped one, and a photo and mask of the names used there."""
    import numpy as np
    from PIL import Image

    with Image.open(ROOT / "picme_sdk/samples/chelsea.jpg") as photo:
        photo.save(tmp_path / "photo.jpg")
        mask = np.zeros((photo.height, photo.width), np.uint8)
    mask[100:200, 150:250] = 255
    Image.fromarray(mask).save(tmp_path / "mask.png")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    code = "\n".join(blocks).replace("Completer()", f"Completer({str(bundle_folder)!r})")
    subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, check=True)
