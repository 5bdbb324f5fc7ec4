"""What the photo tools share, without any of them: pixels to PNG, the `picme complete` command, its report, its errors.

Standard library only, Python 3.8 or later: it runs inside the host's own interpreter, where nothing can be installed. The file is the
same in integrations/gimp/picme and integrations/krita/picme, so that each folder can be copied as it is.

PICME_COMMAND   how to start picme, where it is not on the search path: "C:/tools/picme.exe", or "python3 -m picme_sdk.cli"
PICME_BUNDLE    a model other than the one that ships
"""

import json
import os
import shlex
import shutil
import struct
import subprocess
import zlib

# A host in an AppImage or a bundle points these at its own libraries, which would break the picme we start.
HOST_ONLY = ("PYTHONHOME", "PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
TIMEOUT = 600  # seconds


class PicmeFailed(Exception):
    """What went wrong, in words for the user."""


class Result:
    """One fill: a PNG file of the layer's size, and what it is called."""

    def __init__(self, file, primitive, weight, token):
        self.file, self.primitive, self.weight, self.token = file, primitive, weight, token

    @property
    def name(self):
        return f"picme: idea {self.primitive} ({self.weight:.0%})"


def write_png(path, width, height, channels, pixels):
    """Pixels as a PNG: 8 bit, 1 (grey), 3 (RGB) or 4 (RGBA) channels, rows from the top without gaps."""
    kinds = {1: 0, 3: 2, 4: 6}
    row = width * channels
    if channels not in kinds or width < 1 or height < 1 or len(pixels) != row * height:
        raise PicmeFailed(f"{len(pixels)} bytes are no picture of {width}x{height} with {channels} channels")

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    lines = b"".join(b"\0" + bytes(pixels[i : i + row]) for i in range(0, len(pixels), row))
    head = struct.pack(">IIBBBBB", width, height, 8, kinds[channels], 0, 0, 0)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head))
        file.write(chunk(b"IDAT", zlib.compress(lines, 3)) + chunk(b"IEND", b""))


def rgb(pixels, red=0):
    """Four channels to three; `red` is 2 where a host keeps blue first. What was erased shows its colour again: the model fills it."""
    three = bytearray(len(pixels) // 4 * 3)
    for channel, place in enumerate((red, 1, 2 - red)):
        three[channel::3] = pixels[place::4]
    return bytes(three)


def hard(selection):
    """A selection as the hole: whatever is selected at all. Its soft edge is for the layer, so that it is not blended twice."""
    return bytes(selection).translate(b"\0" + b"\xff" * 255)


def picme(environment=None):
    """How to start picme, as a list."""
    environment = os.environ if environment is None else environment
    told = environment.get("PICME_COMMAND", "").strip()
    if told:
        return [told] if os.path.isfile(told) else shlex.split(told)
    found = shutil.which("picme", path=environment.get("PATH"))
    if not found:
        raise PicmeFailed(
            "The picme command was not found.\nInstall it (pip install 'picme-sdk[cpu]'), or set PICME_COMMAND to where it is."
        )
    return [found]


def command(photo, mask, out, results=4, seed=None, environment=None):
    """The command line that completes a photo."""
    environment = os.environ if environment is None else environment
    line = [
        *picme(environment),
        "complete",
        photo,
        mask,
        "-n",
        str(results),
        "-o",
        out,
        "--strategy",
        "diverse",
        "--json",
    ]
    if seed is not None:
        line += ["--seed", str(seed)]
    if environment.get("PICME_BUNDLE"):
        line += ["--bundle", environment["PICME_BUNDLE"]]
    return line


def parse(printed):
    """The results in a report, as `picme complete --json` prints it: the last line."""
    try:
        report = json.loads(printed.strip().splitlines()[-1])
        pairs = list(zip(report["files"], report["results"]))  # noqa: B905 (Python 3.8 knows no strict)
        return [Result(file, row["primitive"], row["weight"], row["token"]) for file, row in pairs]
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise PicmeFailed(f"picme answered something unexpected: {printed.strip()[:200]!r}") from error


def complete(folder, photo, mask, results=4, seed=None):
    """Run picme on two PNG files; its results are files in `folder`."""
    line = command(photo, mask, os.path.join(folder, "results"), results, seed)
    clean = {name: value for name, value in os.environ.items() if name not in HOST_ONLY}
    quiet = {"creationflags": subprocess.CREATE_NO_WINDOW} if os.name == "nt" else {}
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=TIMEOUT, env=clean, cwd=folder, **quiet)  # noqa: S603
    except subprocess.TimeoutExpired as error:
        raise PicmeFailed(f"picme took longer than {TIMEOUT} seconds.") from error
    except OSError as error:
        raise PicmeFailed(f"{line[0]} could not be started: {error}") from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"picme ended with code {done.returncode}"]
        raise PicmeFailed(lines[-1].replace("picme: ", "", 1).replace(" | ", "\n"))
    return parse(done.stdout)
