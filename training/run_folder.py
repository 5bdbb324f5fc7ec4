"""The folder of a training run: its lock, metrics.jsonl, contact sheets and the places of its checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, Any

from picme_sdk.errors import CheckpointError
from picme_sdk.io import replacing


class RunFolder:
    """Only one process of a run holds the lock and writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last, self.best = path / "last.safetensors", path / "best.safetensors"
        self.state, self.metrics = path / "last.state.safetensors", path / "metrics.jsonl"
        self._lock: IO[bytes] | None = None

    def lock(self) -> None:
        """Two runs in one folder would overwrite each other's checkpoints. The system releases the lock when the process ends."""
        file = open(self.path / ".lock", "wb")  # noqa: SIM115 (held as long as the run)
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # this system has no such locks
            pass
        except OSError as error:
            file.close()
            raise CheckpointError(
                f"{self.path} is in use", "no other run in it", "wait for it, or choose another --out"
            ) from error
        self._lock = file

    def append(self, line: dict[str, Any]) -> None:
        """Add a line to metrics.jsonl."""
        with open(self.metrics, "a") as file:
            file.write(json.dumps(line) + "\n")

    def drop_lines_after(self, images: int) -> None:
        """Remove the lines that were logged after a checkpoint, whose steps will be repeated, and a last line that a kill cut short."""

        def is_kept(line: str) -> bool:
            try:
                return bool(json.loads(line)["images"] <= images)
            except (ValueError, LookupError, TypeError):
                return False

        if self.metrics.exists():
            lines = [line for line in self.metrics.read_text(errors="replace").splitlines() if is_kept(line)]
            with replacing(self.metrics) as temporary:
                temporary.write_text("".join(f"{line}\n" for line in lines))

    def sheet(self, images: int) -> Path:
        """Where the contact sheet after `images` images belongs."""
        (self.path / "sheets").mkdir(exist_ok=True)
        return self.path / "sheets" / f"{images:08d}.png"
