"""What every language agrees on: names, limits, defaults, formats and keys.

Written by contract/generate.py from contract/contract.json. Change the JSON and run the script; tests/contract finds any drift.
"""

from __future__ import annotations

from typing import Literal

Strategy = Literal["categorical", "diverse", "likely"]
Device = Literal["auto", "cpu", "cuda", "tensorrt", "rtx"]
Precision = Literal["float32", "float16", "int8"]
Storage = Literal["float32", "float16"]
Detail = Literal["off", "auto"]

STRATEGIES: tuple[Strategy, ...] = ("categorical", "diverse", "likely")
DEVICES: tuple[Device, ...] = ("auto", "cpu", "cuda", "tensorrt", "rtx")
PRECISIONS: tuple[Precision, ...] = ("float32", "float16", "int8")
STORAGES: tuple[Storage, ...] = ("float32", "float16")
DETAILS: tuple[Detail, ...] = ("off", "auto")
GRAPHS = ("encoder", "mixture", "decoder")
BUILDERS = ("tensorrt", "tensorrt_rtx")

# Image formats by Pillow's names: those that are read, and those that every browser shows, too.
IMAGE_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
BROWSER_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm")
MEDIA_TYPES = {
    "PNG": "image/png",
    "JPEG": "image/jpeg",
    "WEBP": "image/webp",
    "GIF": "image/gif",
    "BMP": "image/bmp",
    "TIFF": "image/tiff",
    "PPM": "image/x-portable-anymap",
}

MAX_RESULTS = 1_000
MAX_HTTP_RESULTS = 64
MAX_PIXELS = 100_000_000
MAX_HTTP_PIXELS = 50_000_000
MAX_CONTEXT = 1_048_576
MAX_HOLES = 8
MAX_TEMPERATURE = 100
MAX_STRENGTH = 1
MAX_THREADS = 1_024
MAX_TOKEN_LENGTH = 2_048
MAX_RECIPE_DEPTH = 32
MAX_MANIFEST_BYTES = 1_048_576
MAX_FILE_BYTES = 2_147_483_648
MAX_BUNDLE_FILES = 256
MAX_TEXT_LENGTH = 4_000
MAX_KNOWS_LENGTH = 200
MAX_NUMBER = 1e30
MIN_IMAGE_SIZE = 8
MAX_IMAGE_SIZE = 4_096
MAX_PRIMITIVES = 1_024
MAX_LATENT = 65_536
MAX_BATCH = 1_024
MAX_AMBIGUITY_POWER = 16

DEFAULT_RESULTS = 6
DEFAULT_BATCH_RESULTS = 1
DEFAULT_STRATEGY: Strategy = "diverse"
DEFAULT_TEMPERATURE = 1.0
DEFAULT_VARIATIONS = 4
DEFAULT_STRENGTH = 0.3
DEFAULT_STEPS = 5
DEFAULT_DEVICE: Device = "auto"
DEFAULT_PRECISION: Precision = "float32"

HTTP_STATUS = {
    "BadArgument": 400,
    "BadImage": 400,
    "UnknownImageFormat": 400,
    "ImageTooLarge": 413,
    "BadMask": 400,
    "BadBundle": 400,
    "BadToken": 400,
    "BackendUnavailable": 400,
    "NumericalError": 500,
    "Closed": 400,
    "FileExists": 400,
}

TOKEN_VERSION = 2
BUNDLE_FORMAT = 2
MANIFEST = "picme.json"
BUNDLE_KEYS: dict[int, dict[str, tuple[str, ...]]] = {
    1: {
        "manifest": (
            "format",
            "name",
            "licence",
            "image_size",
            "primitives",
            "latent",
            "max_batch",
            "graphs",
            "engines",
            "files",
            "made_by",
            "verified",
            "card",
            "seal",
        ),
        "graph": ("graph", "precision", "file", "sha256", "bytes", "inputs", "outputs"),
        "engine": (
            "graph",
            "precision",
            "file",
            "sha256",
            "bytes",
            "inputs",
            "outputs",
            "builder",
            "version",
            "target",
            "source",
            "profile",
        ),
        "tensor": ("name", "dtype", "shape"),
        "file": ("file", "sha256", "bytes"),
        "check": ("graph", "compared", "measure", "input", "value", "limit"),
        "card": ("training_data", "training", "metrics", "limits"),
    },
    2: {
        "manifest": (
            "format",
            "name",
            "knows",
            "licence",
            "model_id",
            "image_size",
            "primitives",
            "latent",
            "max_batch",
            "ambiguity",
            "graphs",
            "engines",
            "files",
            "made_by",
            "verified",
            "measured",
            "card",
            "seal",
        ),
        "ambiguity": ("scale", "power", "weights"),
        "graph": ("graph", "precision", "storage", "file", "sha256", "bytes", "inputs", "outputs"),
        "engine": (
            "graph",
            "precision",
            "file",
            "sha256",
            "bytes",
            "inputs",
            "outputs",
            "builder",
            "version",
            "target",
            "source",
            "profiles",
        ),
        "tensor": ("name", "dtype", "shape"),
        "file": ("file", "sha256", "bytes"),
        "check": ("graph", "compared", "measure", "input", "value", "limit"),
        "measurement": (
            "device",
            "driver",
            "clocks",
            "backend",
            "graph",
            "precision",
            "results",
            "rounds",
            "p50_ms",
            "p99_ms",
        ),
        "card": ("training_data", "training", "metrics", "limits"),
    },
}
