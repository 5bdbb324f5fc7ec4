"""Attack 21: checkpoints for the exporter, and names of its outputs. Allowed: a bundle, or one line and exit code 2."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from export.report import polygraphy_commands
from picme_sdk.bundle.bundle import Bundle
from picme_sdk.errors import CheckpointError
from tests.conftest import ROOT
from training.checkpoint import KEY, load_weights

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}


def run(
    script: str, *arguments: Any, cwd: Path, before: Callable[[], object] | None = None
) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, str(ROOT / script), *map(os.fsencode, map(os.fspath, map(_text, arguments)))]
    return subprocess.run(command, cwd=cwd, env=ENVIRONMENT, capture_output=True, preexec_fn=before)


def _text(argument: Any) -> Any:
    return argument if isinstance(argument, Path) else str(argument)


class Payload:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("touch canary",)


def test_21_a_pickle_that_runs_code(tmp_path: Path) -> None:
    """Whatever the pickle is wrapped in, and whatever it is called."""
    torch.save({"config": Payload(), "size": 32, "weights": {}}, tmp_path / "a.pt")
    torch.save(Payload(), tmp_path / "b.pth", _use_new_zipfile_serialization=False)
    shutil.copy(tmp_path / "a.pt", tmp_path / "c.safetensors")
    for name in ("a.pt", "b.pth", "c.safetensors"):
        with pytest.raises(CheckpointError):
            load_weights(tmp_path / name)
    assert not list(tmp_path.glob("**/canary"))
    assert not Path("canary").exists()


def note_of(checkpoint: Path) -> dict[str, Any]:
    with safe_open(checkpoint, "pt") as file:
        found: dict[str, Any] = json.loads(file.metadata()[KEY])
    return found


ODD: list[Any] = [None, True, 0, -1, 10**7, 10**30, 1e300, "x", [], [0], [-1, 2], [10**9, 10**9], [[]], {}]


def test_21_odd_values_in_a_checkpoint_s_description(checkpoint: Path, tmp_path: Path) -> None:
    """Values of the description swapped for odd ones: refused in bounded time and memory, or as good as before."""
    tensors, path, random = load_file(checkpoint), tmp_path / "odd.safetensors", np.random.default_rng(21)
    places = [("config", "model", key) for key in note_of(checkpoint)["config"]["model"]]
    places += [
        ("config", "phases", 0, "batch"),
        ("config", "phases"),
        ("config", "betas"),
        ("config",),
        ("size",),
        ("progress",),
    ]
    refused = 0
    for place in places:
        for value in random.permutation(len(ODD))[:5]:
            note: Any = note_of(checkpoint)
            table = note
            for key in place[:-1]:
                table = table[key]
            table[place[-1]] = ODD[value]
            save_file(tensors, path, {KEY: json.dumps(note)})
            try:
                load_weights(path)
            except CheckpointError as error:
                assert "\n" not in str(error)  # noqa: PT017
                refused += 1
    assert refused > 4 * len(places)


@pytest.mark.parametrize(
    "place", ["encoder_blocks", "widths"], ids=["a network without an end", "a network that no memory holds"]
)
def test_21_a_kilobyte_that_asks_for_the_moon(checkpoint: Path, tmp_path: Path, place: str) -> None:
    note = note_of(checkpoint)
    note["config"]["model"][place] = [10**9, 10**9] if place == "encoder_blocks" else [60_000, 60_000]
    save_file({"a": torch.zeros(1)}, tmp_path / "x.safetensors", {KEY: json.dumps(note)})
    start = time.monotonic()
    with pytest.raises(CheckpointError):
        load_weights(tmp_path / "x.safetensors")
    assert time.monotonic() - start < 30


def test_21_descriptions_that_are_none(checkpoint: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    for text in (
        "",
        "null",
        "[]",
        "[" * 100_000,
        '{"config": 5}',
        '{"config": {}, "size": 32}',
        '{"a":' * 100_000,
        "1e999",
    ):
        save_file({"a": torch.zeros(1)}, path, {KEY: text})
        with pytest.raises(CheckpointError):
            load_weights(path)
    good = checkpoint.read_bytes()
    header = int.from_bytes(good[:8], "little")
    for data in (b"", good[:7], (2**63).to_bytes(8, "little") + good[8:], (header + 10**9).to_bytes(8, "little") + good[8:], good[:-1], good[:8] + b"x" * header + good[8 + header :]):  # fmt: skip
        path.write_bytes(data)
        with pytest.raises(CheckpointError):
            load_weights(path)


def test_21_overlapping_tensors(tmp_path: Path) -> None:
    header = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}).encode()  # fmt: skip
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(12))
    with pytest.raises(CheckpointError):
        load_weights(path)


def test_21_seeded_damage_of_checkpoints(checkpoint: Path, tmp_path: Path) -> None:
    note, random = note_of(checkpoint), np.random.default_rng(21)
    few = dict(list(load_file(checkpoint).items())[:3])
    torch.save({"config": note["config"], "size": 32, "weights": few}, tmp_path / "x.pt")
    (tmp_path / "x.safetensors").write_bytes(checkpoint.read_bytes())
    for name, head in (("x.pt", 6000), ("x.safetensors", 3000)):
        good = (tmp_path / name).read_bytes()
        for _ in range(60):
            data = bytearray(good)
            for _ in range(random.integers(1, 6)):
                data[random.integers(min(head, len(data)))] = random.integers(256)
            (tmp_path / name).write_bytes(data)
            try:
                load_weights(tmp_path / name)
            except CheckpointError:
                continue


ODD_NAMES = [
    "sp ace",
    "a[/b]",
    "[red]",
    "; touch canary",
    "$(touch canary)",
    "é漢字",
    os.fsdecode(b"\xff\xfe"),
    "-n",
    "'",
    '"',
]


def test_21_odd_names_of_outputs(exported_folder: Path, tmp_path: Path) -> None:
    """Written under exactly that name; nothing is a shell's or a terminal's to interpret; printed commands can be pasted."""
    import shlex

    name = "".join(ODD_NAMES[:8])
    done = run(
        "export/to_trt.py",
        "--from-bundle",
        exported_folder.resolve(),
        f"--out={name}",
        "--builder",
        "none",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    Bundle(tmp_path / name).verify()
    assert not list(tmp_path.glob("**/canary"))
    for line in polygraphy_commands(Bundle(exported_folder).manifest, Path(name)):
        words = shlex.split(line)
        assert words[words.index("run") + 1].startswith(f"{name}/")


def test_21_a_missing_or_strange_checkpoint_file(tmp_path: Path) -> None:
    (tmp_path / "folder.safetensors").mkdir()
    for name in ("missing.safetensors", "folder.safetensors", "missing.pt", "none", "a\x01b"):
        with pytest.raises(CheckpointError):
            load_weights(tmp_path / name)
