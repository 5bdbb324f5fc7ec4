"""The Krita plug-in in the real program, under a virtual screen."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent


@pytest.mark.skipif(
    not (shutil.which("krita") and shutil.which("xvfb-run")), reason="krita and xvfb are not installed here"
)
def test_krita_gets_the_results_as_layers(bundle_folder: Path, tmp_path: Path) -> None:
    plugins = tmp_path / "data" / "krita" / "pykrita"
    shutil.copytree(ROOT / "integrations/krita/picme", plugins / "picme")
    (plugins / "check").mkdir()
    shutil.copy(HERE / "krita_check.py", plugins / "check" / "__init__.py")
    desktop = (ROOT / "integrations/krita/picme.desktop").read_text()
    (plugins / "picme.desktop").write_text(desktop)
    (plugins / "check.desktop").write_text(desktop.replace("X-KDE-Library=picme", "X-KDE-Library=check"))
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "kritarc").write_text("[python]\nenable_picme=true\nenable_check=true\n")
    places = {"HOME": "", "XDG_DATA_HOME": "data", "XDG_CONFIG_HOME": "config", "XDG_CACHE_HOME": "cache"}
    environment = os.environ | {name: str(tmp_path / folder) for name, folder in places.items()}
    environment |= {
        "PICME_CHECK": str(tmp_path / "found.json"),
        "PICME_COMMAND": f"'{sys.executable}' -m picme_sdk.cli",
        "PICME_BUNDLE": str(bundle_folder),
    }
    command = ["xvfb-run", "-a", "krita", "--nosplash"]
    with (tmp_path / "log.txt").open("w") as log:
        subprocess.run(command, env=environment, stdout=log, stderr=log, timeout=240, cwd=tmp_path)
    assert (tmp_path / "found.json").exists(), (tmp_path / "log.txt").read_text()[-2000:]
    found = json.loads((tmp_path / "found.json").read_text())
    assert "error" not in found, found["error"]
    assert found["action"], "the menu entry is there"
    names = [name for name, _ in found["layers"] if name.startswith("picme: idea")]
    shown = [name for name, visible in found["layers"] if visible and name in names]
    assert len(names) == 3
    assert shown == [names[-1]], "one is shown, on top"
    assert found["different"] == 3
    assert found["opaque"] == [720, 720, 720], "a layer holds the hole and nothing else"
    assert found["layer_kept"]
    assert found["changed_outside"] == 0
    assert found["changed_inside"] > 600
    assert "Select" in found["without_selection"]
