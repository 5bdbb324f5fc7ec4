"""Files that appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from picme_sdk.errors import FileExists
from picme_sdk.io import check_free, replacing


def test_a_file_takes_its_place_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "clip.mp4"
    target.write_text("old")
    with replacing(target) as temporary:
        assert (temporary.parent, temporary.suffix) == (tmp_path, ".mp4"), "containers are chosen by suffix"
        temporary.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


def test_after_an_error_nothing_is_left(tmp_path: Path) -> None:
    target = tmp_path / "a.png"
    target.write_text("old")

    def fail() -> None:
        with replacing(target) as temporary:
            temporary.write_text("half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_an_existing_file_is_only_replaced_with_force(tmp_path: Path) -> None:
    new, old = tmp_path / "new", tmp_path / "old"
    old.write_text("old")
    assert check_free(new, force=False) == new
    assert check_free(old, force=True) == old
    with pytest.raises(FileExists, match="--force"):
        check_free(old, force=False)
