"""Processes of a test: whose children they are, and that none is left. Linux only, as the tests of this folder are."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path


def _stat(pid: int) -> tuple[int, str] | None:
    """A process' parent, and when it began: a number alone may be somebody else's by now."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else (int(fields[1]), fields[19])


def descendants(root: int) -> dict[int, str]:
    """Children, grandchildren and so on, each with its beginning."""
    found = {int(entry.name): _stat(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    members: dict[int, str] = {}
    grown = True
    while grown:
        grown = False
        for pid, stat in found.items():
            if stat is not None and pid not in members and (stat[0] == root or stat[0] in members):
                members[pid], grown = stat[1], True
    return members


def title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def titled(root: int, start: str) -> list[int]:
    """Descendants whose title begins so; Ray names its workers after what they do."""
    return sorted(pid for pid in descendants(root) if title(pid).startswith(start))


def cpu_time(pid: int) -> int:
    """Ticks that a process has worked."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def await_title(root: int, start: str, count: int, seconds: float = 60) -> list[int]:
    until = time.monotonic() + seconds
    while len(found := titled(root, start)) < count:
        assert time.monotonic() < until, f"{len(found)} of {count} processes {start}"
        time.sleep(0.05)
    return found


def _alive(members: dict[int, str]) -> list[int]:
    return [pid for pid, began in members.items() if (stat := _stat(pid)) is not None and stat[1] == began]


def end(process: subprocess.Popen[str], how: signal.Signals, seconds: float = 30) -> str:
    """End a process politely, and everything below it; what was still there, by title, is killed and told."""
    members = descendants(process.pid)
    try:
        process.send_signal(how)
        process.wait(seconds)
        until = time.monotonic() + seconds
        while _alive(members) and time.monotonic() < until:
            time.sleep(0.1)
    finally:
        members |= descendants(process.pid)
        left = _alive(members)
        titles = [title(pid) for pid in left]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        process.kill()
    return ", ".join(titles)
