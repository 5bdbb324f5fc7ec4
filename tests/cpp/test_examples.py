"""The built programs: C++ tests with a real bundle, both examples, the GStreamer element, and an installed copy that others can use."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from picme_sdk.completer import Completer
from tests.cpp.native import BUILT, built, runtime_library
from tests.cpp.test_same_as_python import mask_of, photo, psnr

WIDTH, HEIGHT = 120, 90


def write_pnm(path: Path, pixels: np.ndarray) -> Path:
    head = f"P{6 if pixels.ndim == 3 else 5}\n# made by a test\n{pixels.shape[1]} {pixels.shape[0]}\n255\n"
    path.write_bytes(head.encode() + pixels.tobytes())
    return path


def read_ppm(path: Path) -> np.ndarray:
    kind, size, most, pixels = path.read_bytes().split(b"\n", 3)
    assert (kind, most) == (b"P6", b"255")
    width, height = map(int, size.split())
    return np.frombuffer(pixels, np.uint8).reshape(height, width, 3)


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PICME_ONNXRUNTIME": str(runtime_library()), **more}


@pytest.fixture
def mask_file(tmp_path: Path) -> Path:
    path = tmp_path / "mask.pgm"  # without a comment: the two video programs read plain headers only
    path.write_bytes(f"P5\n{WIDTH} {HEIGHT}\n255\n".encode() + hole().tobytes())
    return path


def hole() -> np.ndarray:
    return mask_of(WIDTH, HEIGHT, (40, 25, 85, 60))


def need(tool: str) -> str:
    found = shutil.which(tool)
    if not found:
        pytest.skip(f"{tool} is not installed")
    return found


def test_the_contract_holds(bundle_folder: Path) -> None:
    program = built("tests/contract_test")
    done = subprocess.run([program], env=environment(PICME_TEST_BUNDLE=str(bundle_folder)), capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr  # the library prints nothing


def test_complete_fills_a_photo_as_python_does(bundle_folder: Path, tmp_path: Path) -> None:
    given = photo(WIDTH, HEIGHT)
    files = write_pnm(tmp_path / "photo.ppm", given), write_pnm(tmp_path / "mask.pgm", hole())
    command = [built("examples/complete"), bundle_folder, *files, tmp_path / "out", "3", "7"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with Completer(bundle_folder, device="cpu") as completer:
        results = completer.complete(given, hole(), n=3, seed=7)
    for i, (line, result) in enumerate(zip(done.stdout.splitlines(), results, strict=True)):
        assert line.split()[-1] == result.token
        assert psnr(read_ppm(tmp_path / f"out{i}.ppm"), result.image) >= 45


def test_complete_says_what_is_wrong(bundle_folder: Path, tmp_path: Path) -> None:
    good = write_pnm(tmp_path / "photo.ppm", photo(WIDTH, HEIGHT))
    small = write_pnm(tmp_path / "small.pgm", hole()[:-1])
    (tmp_path / "bad.ppm").write_bytes(b"P6\n5 5\n255\nshort")
    empty = write_pnm(tmp_path / "empty.pgm", hole() * 0)
    program, out = built("examples/complete"), tmp_path / "out"
    cases = {
        "usage": [program],
        "no binary PPM": [program, bundle_folder, tmp_path / "bad.ppm", small, out],
        "different sizes": [program, bundle_folder, good, small, out],
        "an empty mask": [program, bundle_folder, good, empty, out],
        "expected a bundle": [program, tmp_path, good, write_pnm(tmp_path / "mask.pgm", hole()), out],
    }
    for text, command in cases.items():
        done = subprocess.run(command, env=environment(), capture_output=True, text=True)
        assert done.returncode in (1, 2)
        assert text in done.stderr
    assert not list(tmp_path.glob("out*"))


def test_frames_go_through_the_video_filter_with_pinned_noise(bundle_folder: Path, mask_file: Path) -> None:
    frames = np.stack([photo(WIDTH, HEIGHT, seed=seed) for seed in (0, 0, 1)])
    command = [built("examples/video_filter"), bundle_folder, str(WIDTH), str(HEIGHT), mask_file, "1", "5"]
    done = subprocess.run(command, input=frames.tobytes(), env=environment(), capture_output=True)
    assert done.returncode == 0, done.stderr
    filled = np.frombuffer(done.stdout, np.uint8).reshape(frames.shape)
    outside = hole() == 0
    assert np.array_equal(filled[:, outside], frames[:, outside])
    assert np.array_equal(filled[0], filled[1])  # equal frames: equal fills
    with Completer(bundle_folder, device="cpu") as completer:
        for frame, result in zip(frames, filled, strict=True):
            assert psnr(result, completer.encode(frame, hole()).sample(1, 5, primitive=1)[0].image) >= 45
    cut = subprocess.run(command, input=frames.tobytes()[:-5], env=environment(), capture_output=True)
    assert cut.returncode == 1
    assert b"not whole" in cut.stderr


def test_the_filter_stands_between_two_ffmpeg(bundle_folder: Path, mask_file: Path, tmp_path: Path) -> None:
    ffmpeg, program = need("ffmpeg"), built("examples/video_filter")
    size, out = f"{WIDTH}x{HEIGHT}", tmp_path / "out.mkv"
    line = (
        f"'{ffmpeg}' -v error -f lavfi -i testsrc2=size={size}:rate=10:duration=1 -f rawvideo -pix_fmt rgb24 - | "
        f"'{program}' '{bundle_folder}' {WIDTH} {HEIGHT} '{mask_file}' | "
        f"'{ffmpeg}' -v error -f rawvideo -pix_fmt rgb24 -s {size} -r 10 -i - -c:v ffv1 '{out}'"
    )
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {line}"], env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "10 frames" in done.stderr
    read = [ffmpeg, "-v", "error", "-i", str(out), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    frames = np.frombuffer(subprocess.run(read, capture_output=True, check=True).stdout, np.uint8)
    assert frames.size == 10 * WIDTH * HEIGHT * 3
    assert frames.reshape(10, HEIGHT, WIDTH, 3)[:, hole() > 0].std() > 1


def test_the_gstreamer_element_fills_every_frame(bundle_folder: Path, mask_file: Path, tmp_path: Path) -> None:
    launch = need("gst-launch-1.0")
    if not (BUILT / "gstreamer" / "libgstpicme.so").exists():
        pytest.skip("picmefill is not built: GStreamer's development files were not there")
    env = environment(GST_PLUGIN_PATH=str(BUILT / "gstreamer"), GST_REGISTRY=str(tmp_path / "registry.bin"))
    source = f"videotestsrc num-buffers=3 pattern=smpte ! video/x-raw,format=RGB,width={WIDTH},height={HEIGHT} !"
    fill = f"picmefill bundle={bundle_folder} mask={mask_file} primitive=1 seed=5 !"
    videos = []
    for name, element in (("plain", ""), ("filled", fill)):
        line = f"{source} {element} filesink location={tmp_path / name}"
        done = subprocess.run([launch, "-q", *line.split()], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        videos.append(np.frombuffer((tmp_path / name).read_bytes(), np.uint8).reshape(3, HEIGHT, WIDTH, 3))
    plain, filled = videos
    outside = hole() == 0
    assert np.array_equal(plain[:, outside], filled[:, outside])
    with Completer(bundle_folder, device="cpu") as completer:
        for before, after in zip(plain, filled, strict=True):
            wanted = completer.encode(before.copy(), hole()).sample(1, 5, primitive=1)[0].image
            assert psnr(after, wanted) >= 45
    broken = f"{source} picmefill bundle={tmp_path} mask={mask_file} ! fakesink"
    done = subprocess.run([launch, "-q", *broken.split()], env=env, capture_output=True, text=True)
    assert done.returncode != 0
    assert "expected a bundle" in done.stdout + done.stderr


USER = """
#include <picme.hpp>
int main() {
    try { picme::Completer completer("/nowhere"); } catch (const picme::Error &e) { return e.status() == PICME_BAD_BUNDLE ? 0 : 1; }
    return 2;
}
"""
PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES CXX)
find_package(picme 0.1 REQUIRED)
add_executable(user user.cpp)
target_link_libraries(user PRIVATE picme::picme)
"""


def test_an_installed_copy_serves_cmake_and_pkg_config(tmp_path: Path) -> None:
    built("libpicme.so")
    cmake, compiler, pkg_config = need("cmake"), need("c++"), need("pkg-config")
    prefix, project = tmp_path / "prefix", tmp_path / "project"
    project.mkdir()
    (project / "user.cpp").write_text(USER)
    (project / "CMakeLists.txt").write_text(PROJECT)

    def run(*command: str | Path, **more: str) -> str:
        done = subprocess.run(command, env=environment(**more), capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(cmake, "--install", BUILT, "--prefix", prefix)
    run(cmake, "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    run(cmake, "--build", project / "build")
    run(project / "build" / "user")
    folder = next(prefix.rglob("picme.pc")).parent
    flags = run(pkg_config, "--cflags", "--libs", "picme", PKG_CONFIG_PATH=str(folder)).split()
    run(compiler, "-std=c++17", project / "user.cpp", "-o", project / "user", *flags)
    run(project / "user", LD_LIBRARY_PATH=str(folder.parent))


def test_only_picme_functions_are_exported() -> None:
    listed = subprocess.run([need("nm"), "-D", "--defined-only", built("libpicme.so")], capture_output=True, text=True, check=True)  # fmt: skip
    names = {line.split()[-1] for line in listed.stdout.splitlines()}
    assert names
    assert all(name.startswith("picme_") for name in names)
