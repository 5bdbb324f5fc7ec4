"""Many photos on a cluster of two workers: the same files as one process makes, whatever dies on the way."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from picme_sdk.cli import main
from picme_sdk.cluster import bulk
from picme_sdk.cluster.places import Place
from tests.conftest import ROOT
from tests.picme_sdk.cluster.conftest import PICME, TwoWorkers
from tests.processes import await_title, cpu_time

PHOTOS = 44
N = 4


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Noise, which takes PNG a while, so that a job can be caught in its middle; and one file that is no picture."""
    folder = tmp_path_factory.mktemp("photos")
    random = np.random.default_rng(0)
    for i in range(PHOTOS):
        Image.fromarray(random.integers(0, 256, (200, 300, 3), np.uint8)).save(folder / f"photo{i:02}.jpg", quality=95)
    (folder / "photo30b.jpg").write_bytes(b"no picture")
    mask = np.zeros((200, 300), np.uint8)
    mask[60:120, 80:180] = 255
    Image.fromarray(mask).save(folder / "mask.tmp", "PNG")
    return folder


def options(photos: Path, bundle: Path, out: Path) -> list[str]:
    return [str(photos), "--mask", str(photos / "mask.tmp"), "-n", str(N), "--bundle", str(bundle), "-o", str(out)]


@pytest.fixture(scope="module")
def alone(photos: Path, bundle_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What `picme batch` makes in one process."""
    out = tmp_path_factory.mktemp("alone")
    done = subprocess.run(
        [*PICME, "batch", *options(photos, bundle_folder, out)], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, f"{PHOTOS} done" in done.stderr) == (1, True), done.stderr
    return results(out)


def results(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.glob("*.png")}


def await_results(job: subprocess.Popen[str], out: Path, count: int) -> None:
    until = time.monotonic() + 60
    while len(list(out.glob("*.png"))) < count:
        assert job.poll() is None, job.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.fixture(scope="module")
def survivor(
    cluster: TwoWorkers, photos: Path, bundle_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """A job one of whose workers was killed in its middle: what it made, and what it printed."""
    out = tmp_path_factory.mktemp("survivor")
    job = cluster.batch(*options(photos, bundle_folder, out), "--json", str(out / "report.json"))
    await_results(job, out, 32)  # half of what one worker gets at a time
    worker = max(await_title(cluster.process.pid, "ray::MapWorker", 2), key=cpu_time)  # one that has begun
    os.kill(worker, signal.SIGKILL)
    made = len(list(out.glob("*.png")))
    printed = job.communicate(timeout=90)[1]
    assert job.returncode == 1, printed  # one file is no picture
    assert made < PHOTOS * N / 2
    sys.stdout.write(f"killed a worker when {made} of {PHOTOS * N} results were there: {printed.splitlines()[-1]}\n")
    return out, printed


def test_a_killed_worker_loses_and_doubles_nothing(survivor: tuple[Path, str], alone: dict[str, bytes]) -> None:
    out, _ = survivor
    assert results(out) == alone
    report = json.loads((out / "report.json").read_text())
    assert (report["done"], report["failed"]) == (PHOTOS, 1)
    names = [row["photo"] for row in report["photos"]]
    assert names == sorted([*(f"photo{i:02}.jpg" for i in range(PHOTOS)), "photo30b.jpg"])
    files = [result["file"] for row in report["photos"] for result in row["results"]]
    assert sorted(files) == sorted(alone)


def test_what_the_dead_worker_had_finished_is_not_made_again(survivor: tuple[Path, str]) -> None:
    found = re.search(r"(\d+) done, (\d+) done before, 1 set aside", survivor[1])
    assert found is not None
    assert int(found[1]) + int(found[2]) == PHOTOS
    assert int(found[2]) > 0


def test_the_report_tells_each_results_token(survivor: tuple[Path, str]) -> None:
    out, _ = survivor
    for row in json.loads((out / "report.json").read_text())["photos"][:3]:
        for result in row["results"]:
            with Image.open(out / result["file"]) as picture:
                assert picture.text["picme-token"] == result["token"]


def test_poison_is_set_aside_with_its_error(survivor: tuple[Path, str]) -> None:
    out, printed = survivor
    told = json.loads((out / "failed/photo30b.jpg.json").read_text())
    assert told["photo"] == "photo30b.jpg"
    assert "is no picture | expected" in told["error"]
    assert f"photo30b.jpg: {told['error']}" in printed
    assert len(list((out / "failed").iterdir())) == 1


def test_a_restarted_job_continues_and_rewrites_nothing(
    cluster: TwoWorkers, photos: Path, bundle_folder: Path, tmp_path: Path, alone: dict[str, bytes], survivor: tuple[Path, str]
) -> None:  # fmt: skip
    from pyarrow import parquet

    broken = cluster.batch(*options(photos, bundle_folder, tmp_path / "out"))
    await_results(broken, tmp_path / "out", 20)
    broken.kill()
    broken.communicate(timeout=20)
    before = {path: path.stat() for path in (tmp_path / "out").rglob("*.*") if not path.name.startswith(".")}
    assert 20 <= len(before) < len(alone)
    job = cluster.batch(*options(photos, bundle_folder, tmp_path / "out"), "--json", str(tmp_path / "report.parquet"))
    printed = job.communicate(timeout=90)[1]
    assert job.returncode == 1, printed
    for path, stat in before.items():
        assert (path.stat().st_ino, path.stat().st_mtime_ns) == (stat.st_ino, stat.st_mtime_ns), path
    assert results(tmp_path / "out") == alone
    rows = parquet.read_table(tmp_path / "report.parquet").to_pylist()
    assert rows == json.loads((survivor[0] / "report.json").read_text())["photos"]


KILLER = """
import os, sys
from picme_sdk.batch import Sampling
from picme_sdk.cluster import bulk
from picme_sdk.cluster.connection import connected, workers_of
from picme_sdk.cluster.places import Place
from picme_sdk.completer import CompleterOptions

class Fragile(bulk.Worker):
    def complete(self, name):
        if name == "photo03.jpg":
            os._exit(9)  # as a decoder that crashes would
        return super().complete(name)

photos, out, bundle, address = sys.argv[1:]
bulk.Worker = Fragile
with connected(address) as ray:
    workers = workers_of(ray.nodes(), "cpu", None)
    options = CompleterOptions(bundle, "cpu", 1)
    job = bulk.BulkJob(Place(photos), Place(out), Place(photos + "/mask.tmp"), Sampling(), options)
    bulk.run_bulk(job, workers, lambda row: print(row["photo"], row["state"], row["error"], flush=True))
"""


def test_a_photo_that_kills_its_workers_is_set_aside(
    cluster: TwoWorkers, photos: Path, bundle_folder: Path, tmp_path: Path
) -> None:
    few = tmp_path / "few"
    few.mkdir()
    for i in range(6):
        shutil.copy(photos / f"photo{i:02}.jpg", few)
    shutil.copy(photos / "mask.tmp", few)
    job = cluster.start("-c", KILLER, str(few), str(tmp_path / "out"), str(bundle_folder), cluster.address)
    printed, errors = job.communicate(timeout=90)
    assert job.returncode == 0, errors
    lines = [line for line in printed.splitlines() if line.startswith("photo")]  # Ray tells of the deaths between them
    assert [line.split()[:2] for line in lines] == [
        [f"photo{i:02}.jpg", "failed" if i == 3 else "done"] for i in range(6)
    ]
    assert "died 2 times" in lines[3]
    assert len(results(tmp_path / "out")) == 5


def test_any_path_that_arrow_reads(photos: Path, tmp_path: Path) -> None:
    place = Place(photos.as_uri())
    assert bulk.photos_of(place) == bulk.photos_of(Place(str(photos)))
    assert place.read("photo30b.jpg") == b"no picture"
    new = Place(tmp_path.as_uri()) / "new folder"
    new.write("a.txt", b"1")
    assert (new.names(), new.has("a.txt"), new.has("b.txt")) == (["a.txt"], True, False)
    assert [path.name for path in (tmp_path / "new folder").iterdir()] == ["a.txt"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--watch"], "--watch with --ray"), (["--json", "-"], "--json -"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_before_anything_starts(
    photos: Path, tmp_path: Path, more: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["batch", str(photos), "-o", str(tmp_path), "--ray", *more]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("command", [["batch", "photos", "-o", "out", "--ray"], ["serve"]])
def test_without_ray_the_error_has_the_pip_line(command: list[str], tmp_path: Path) -> None:
    code = "import sys; sys.modules['ray'] = None; from picme_sdk.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *command], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "pip install 'picme-sdk[ray]'" in done.stderr
