"""The studio's API: requests as frozen dataclasses (their fields are the JSON keys), answers as `Reply`.

Nothing here knows about HTTP servers or threads: a function takes a request and returns bytes, or an iterator of lines that are computed
while they are sent. Pictures arrive as base64 inside JSON. No request holds a path or an address, and no uploaded file is sent back:
every picture that leaves is encoded anew as PNG.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar

from picme_sdk import __version__
from picme_sdk.completer import Completer
from picme_sdk.contract import (
    DEFAULT_RESULTS,
    DEFAULT_STEPS,
    DEFAULT_STRATEGY,
    DEFAULT_STRENGTH,
    DEFAULT_TEMPERATURE,
    DEFAULT_VARIATIONS,
    MAX_HTTP_PIXELS,
    MAX_HTTP_RESULTS,
    Strategy,
)
from picme_sdk.errors import BadArgument
from picme_sdk.pixels.photo import Box
from picme_sdk.scene import Completion, Scene
from picme_sdk.studio.pictures import check_picture, png, preview, read_hole, read_photo, to_text
from picme_sdk.studio.store import Jobs, SceneStore, StoredScene

T = TypeVar("T")


@dataclass(frozen=True)
class Reply:
    """An answer: a whole body, or lines of JSON that are computed one by one."""

    body: bytes = b""
    lines: Iterator[bytes] | None = None
    kind: str = "application/json"
    status: int = 200


@dataclass(frozen=True)
class NewScene:
    """A photo and its hole; without a mask, the photo's transparent pixels."""

    photo: str
    mask: str | None = None
    context: int | None = None


@dataclass(frozen=True)
class Samples:
    """See `Scene.sample`."""

    n: int = DEFAULT_RESULTS
    seed: int | None = None
    strategy: Strategy = DEFAULT_STRATEGY
    primitive: int | None = None
    temperature: float = DEFAULT_TEMPERATURE


@dataclass(frozen=True)
class Variations:
    """More like the result of this token; see `Completion.variations`."""

    token: str
    n: int = DEFAULT_VARIATIONS
    strength: float = DEFAULT_STRENGTH
    seed: int | None = None


@dataclass(frozen=True)
class Interpolation:
    """From one token's result to another's; see `Scene.interpolate`."""

    first: str
    second: str
    steps: int = DEFAULT_STEPS


@dataclass(frozen=True)
class Replay:
    """One result by its token."""

    token: str


@dataclass(frozen=True)
class Complete:
    """`NewScene` and `Samples` at once."""

    photo: str
    mask: str | None = None
    context: int | None = None
    n: int = DEFAULT_RESULTS
    seed: int | None = None
    strategy: Strategy = DEFAULT_STRATEGY
    primitive: int | None = None
    temperature: float = DEFAULT_TEMPERATURE


class Studio:
    """A completer with the scenes that were encoded so far. `photo` is the file that the page opens with, if any."""

    def __init__(self, completer: Completer, photo: bytes | None = None, jobs: Jobs | None = None) -> None:
        self.completer, self.store, self.jobs = completer, SceneStore(), jobs or Jobs()
        self._photo = None if photo is None else (photo, check_picture(photo, "photo"))

    def health(self) -> Reply:
        state = {"status": "ok", "version": __version__, "scenes": len(self.store), "jobs": self.jobs.open}
        return as_json(state)

    def model(self) -> Reply:
        manifest = self.completer.manifest
        return as_json(
            {
                "name": manifest.name, "knows": manifest.knows, "licence": manifest.licence, "image_size": manifest.image_size,
                "primitives": manifest.primitives, "model_id": manifest.model_id, "limits": manifest.card.limits,
                "backend": self.completer.backend, "device": self.completer.device,
                "max_pixels": MAX_HTTP_PIXELS, "max_results": MAX_HTTP_RESULTS,
            }
        )  # fmt: skip

    def first_photo(self) -> Reply:
        if self._photo is None:
            return Reply(status=204)
        return Reply(self._photo[0], kind=self._photo[1])

    def stored(self, handle: str) -> StoredScene:
        """The scene of a handle, ready to sample from."""
        return self.store.get(handle)

    def new_scene(self, request: NewScene) -> Reply:
        return as_json(describe_scene(self.store.add(*self.encode(request.photo, request.mask, request.context))), 201)

    def scene(self, handle: str) -> Reply:
        return as_json(describe_scene(self.store.get(handle)))

    def forget(self, handle: str) -> Reply:
        self.store.remove(handle)
        return Reply(status=204)

    def samples(self, handle: str, request: Samples) -> Reply:
        stored = self.stored(handle)
        return _previews(stored, _stream(stored.scene, request))

    def variations(self, handle: str, request: Variations) -> Reply:
        stored = self.stored(handle)
        _check_count("n", request.n)
        return _previews(
            stored,
            _one_by_one(stored.scene.replay(request.token).variations(request.n, request.strength, request.seed)),
        )

    def interpolation(self, handle: str, request: Interpolation) -> Reply:
        stored = self.stored(handle)
        _check_count("steps", request.steps)
        ends = stored.scene.replay(request.first), stored.scene.replay(request.second)
        return _previews(stored, _one_by_one(stored.scene.interpolate(*ends, request.steps)))

    def replay(self, handle: str, request: Replay) -> Reply:
        stored = self.stored(handle)
        return _previews(stored, iter([stored.scene.replay(request.token)]))

    def image(self, handle: str, request: Replay) -> Reply:
        """The whole picture, for download."""
        return Reply(png(self.stored(handle).scene.replay(request.token)), kind="image/png")

    def complete(self, request: Complete) -> Reply:
        scene, _ = self.encode(request.photo, request.mask, request.context)
        wanted = Samples(request.n, request.seed, request.strategy, request.primitive, request.temperature)
        return Reply(
            lines=(_line({**_facts(result), "image": to_text(png(result))}) for result in _stream(scene, wanted)),
            kind="application/x-ndjson",
        )

    def encode(self, photo: str, mask: str | None, context: int | None) -> tuple[Scene, Box]:
        picture = read_photo(photo)
        hole, box = read_hole(picture, mask)
        return self.completer.encode(picture, hole, context=context), box


def read(kind: type[T], body: bytes) -> T:
    """A request from its JSON. The key set is closed; values are checked where they are used."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadArgument("a body that is no JSON", "a JSON object", "see openapi.json") from error
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    if not isinstance(given, dict) or not given.keys() <= known.keys():
        shown = f"the keys {', '.join(sorted(given))[:200]}" if isinstance(given, dict) else "JSON that is no object"
        raise BadArgument(shown, f"an object with some of {', '.join(known)}", "see openapi.json")
    missing = [name for name, f in known.items() if f.default is MISSING and name not in given]
    if missing:
        raise BadArgument("a request without " + ", ".join(missing), "all that is required", "see openapi.json")
    return kind(**given)


def _check_count(name: str, value: object) -> None:
    if isinstance(value, int) and value > MAX_HTTP_RESULTS:
        raise BadArgument(f"{name}={value}", f"at most {MAX_HTTP_RESULTS} in one request", "ask several times")


def _stream(scene: Scene, request: Samples) -> Iterator[Completion]:
    _check_count("n", request.n)
    return scene.stream(request.n, request.seed, request.strategy, request.primitive, request.temperature)


def describe_scene(stored: StoredScene) -> dict[str, Any]:
    scene = stored.scene
    return {
        "id": stored.id, "size": scene.size, "box": stored.box, "ambiguity": scene.ambiguity, "encode_ms": scene.encode_ms,
        "primitives": [{"primitive": i, "weight": weight} for i, weight in scene.primitives],
    }  # fmt: skip


def _facts(result: Completion) -> dict[str, Any]:
    return {
        "token": result.token, "primitive": result.primitive, "weight": result.weight,
        "log_density": result.log_density, "decode_ms": result.timings.decode_ms,
    }  # fmt: skip


def _one_by_one(results: list[Completion]) -> Iterator[Completion]:
    """Drop each result once it was sent: by then it holds a picture as large as the photo."""
    results.reverse()
    while results:
        yield results.pop()


def _previews(stored: StoredScene, results: Iterator[Completion]) -> Reply:
    """Lines with only the part around the holes: the page has the photo already."""
    lines = (_line({**_facts(r), "box": stored.box, "preview": to_text(preview(r, stored.box))}) for r in results)
    return Reply(lines=lines, kind="application/x-ndjson")


def _line(content: dict[str, Any]) -> bytes:
    return json.dumps(content).encode() + b"\n"


def as_json(content: dict[str, Any], status: int = 200) -> Reply:
    return Reply(json.dumps(content).encode(), status=status)
