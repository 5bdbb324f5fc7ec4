"""The package from outside: what importing costs, what the wheel holds, what the documents promise."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import picme_sdk
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


def build_wheel(folder: Path) -> Path:
    """From a copy of the sources, as from a clean clone: a build folder that lies around must not leak into the wheel."""
    source = folder / "source"
    shutil.copytree(ROOT / "picme_sdk", source / "picme_sdk", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1640995200"}
    subprocess.run([*command, str(source)], check=True, capture_output=True, env=environment)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_holds_the_runtime_only(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"picme_sdk"}
    expected = {path.relative_to(ROOT).as_posix() for path in (ROOT / "picme_sdk").rglob("*") if path.is_file()}
    expected = {name for name in expected if "__pycache__" not in name}
    assert {name for name in names if name.startswith("picme_sdk/")} == expected
    kinds = [".dist-info/licenses/LICENSE", "picme_sdk/py.typed", "samples/chelsea.jpg", "studio/page/index.html", "studio/openapi.json", "pets256/picme.json"]  # fmt: skip
    for kind in kinds:
        assert any(name.endswith(kind) for name in names), kind


def test_the_wheel_is_reproducible(wheel: Path, tmp_path: Path) -> None:
    again = build_wheel(tmp_path)
    assert again.name == wheel.name
    assert hashlib.sha256(again.read_bytes()).hexdigest() == hashlib.sha256(wheel.read_bytes()).hexdigest()


def test_the_wheel_asks_for_what_pyproject_does(wheel: Path) -> None:
    """And for nothing from a certain place: no addresses."""
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(next(n for n in archive.namelist() if n.endswith("METADATA"))).decode()
    wanted = re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE)
    assert {"numpy>=1.24", "pillow>=10.3"} == {line for line in wanted if "extra ==" not in line}
    assert not [line for line in wanted if "@" in line]


def test_the_version_has_one_source(wheel: Path) -> None:
    """`picme_sdk.__version__`: the wheel takes it from there, the others must say the same."""
    version = re.escape(picme_sdk.__version__)
    assert wheel.name.startswith(f"picme_sdk-{picme_sdk.__version__}-")
    assert re.search(rf"^project\(picme VERSION {version} ", (ROOT / "cpp_bindings/CMakeLists.txt").read_text(), re.M)
    assert re.search(rf'^/\* "{version}" \*/$', (ROOT / "cpp_bindings/include/picme.h").read_text(), re.M)
    described = json.loads((ROOT / "picme_sdk/studio/openapi.json").read_text())
    assert described["info"]["version"] == picme_sdk.__version__
    assert not re.search(r'^version = "', (ROOT / "pyproject.toml").read_text(), re.M)


def test_commands_of_the_readme_exist() -> None:
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
