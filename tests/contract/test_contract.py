"""contract/contract.json against every language and every door: what was copied by hand must not drift."""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from picme_sdk import contract as python
from picme_sdk import errors
from picme_sdk.batch import Sampling, photos_in
from picme_sdk.bundle import manifest
from picme_sdk.cli import parser
from picme_sdk.cluster.serve import Service
from picme_sdk.completer import Completer, CompleterOptions
from picme_sdk.scene import Completion, Scene
from picme_sdk.studio import api
from tests.conftest import ROOT

CONTRACT = json.loads((ROOT / "contract/contract.json").read_text())
LIMITS, DEFAULTS, ERRORS = CONTRACT["limits"], CONTRACT["defaults"], CONTRACT["errors"]
HEADER = (ROOT / "cpp_bindings/include/picme.h").read_text()
WRAPPER = (ROOT / "cpp_bindings/include/picme.hpp").read_text()
HTTP = json.loads((ROOT / "picme_sdk/studio/openapi.json").read_text())
PAGE = (ROOT / "picme_sdk/studio/page/index.html").read_text()
SCRIPT = (ROOT / "picme_sdk/studio/page/studio.js").read_text()
BROWSERS = [entry for entry in CONTRACT["image_formats"] if entry["browsers"]]


def test_what_is_generated_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "contract/generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    for path, text in generate.outputs().items():
        assert path.read_text() == text, f"{path.name} is stale: run python contract/generate.py"


def enum(name: str) -> dict[str, int]:
    """The members of an enum of picme.h."""
    body = re.search(rf"typedef enum {name} {{(.*?)}} {name};", HEADER, re.DOTALL)
    assert body is not None
    return {key: int(value) for key, value in re.findall(r"PICME_(\w+) = (\d+)", body[1])}


def test_the_enums_of_the_header() -> None:
    assert enum("picme_strategy") == {name.upper(): i for i, name in enumerate(CONTRACT["strategies"])}
    assert enum("picme_format") == {name.upper(): i for i, name in enumerate(CONTRACT["pixel_formats"])}
    codes = {e["c"].removeprefix("PICME_"): e["code"] for e in ERRORS if e["c"]}
    assert enum("picme_status") == {"OK": 0, **codes}


def test_the_constants_and_texts_of_the_header() -> None:
    found = {key: int(value) for key, value in re.findall(r"PICME_(MAX_\w+|TOKEN_SIZE) = (\d+)", HEADER)}
    assert found.pop("TOKEN_SIZE") > LIMITS["max_token_length"]
    assert found == {"MAX_RESULTS": LIMITS["max_results"]}
    *others, last = (f'"{name}"' for name in CONTRACT["devices"])
    assert f"{', '.join(others)} or {last}. If" in HEADER
    assert f"CPU threads, 1 to {LIMITS['max_threads']}" in HEADER
    assert f"0 to {LIMITS['max_temperature']}: scales the noise" in HEADER
    assert f"PICME_{DEFAULTS['strategy'].upper()} = 1,     /* the default:" in HEADER


def test_the_defaults_of_the_c_plus_plus_wrapper() -> None:
    assert f"strategy = PICME_{DEFAULTS['strategy'].upper()};" in WRAPPER
    assert f"float temperature = {DEFAULTS['temperature']:g};" in WRAPPER
    assert f'provider = "{DEFAULTS["device"]}";' in WRAPPER
    assert f'precision = "{DEFAULTS["precision"]}";' in WRAPPER


def test_pythons_errors() -> None:
    family = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.PicmeError) and kind is not errors.PicmeError
    }
    assert family == {e["python"] for e in ERRORS if e["python"]}
    assert {e["python"]: e["http"] for e in ERRORS if e["http"]} == python.HTTP_STATUS


KINDS = {
    "manifest": manifest.Manifest, "ambiguity": manifest.Ambiguity, "graph": manifest.GraphFile, "engine": manifest.EngineFile,
    "tensor": manifest.Tensor, "file": manifest.File, "check": manifest.Check, "measurement": manifest.Measurement, "card": manifest.Card,
}  # fmt: skip


def test_the_manifests_dataclasses_are_the_keys_of_the_newest_format() -> None:
    keys = CONTRACT["bundle_keys"][str(CONTRACT["bundle_format"])]
    assert {kind: {field.name for field in fields(made)} for kind, made in KINDS.items()} == {
        kind: set(names) for kind, names in keys.items()
    }


def test_the_bundle_page_names_every_key() -> None:
    page = (ROOT / "docs/deploy/bundle.md").read_text()
    for form in CONTRACT["bundle_keys"].values():
        for kind, names in form.items():
            for name in names:
                assert f"`{name}`" in page, f"{kind}.{name}"


def defaults_of(function: Any) -> dict[str, Any]:
    return {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default not in (inspect.Parameter.empty, None)
    }


SAMPLING = {"n": DEFAULTS["results"], "strategy": DEFAULTS["strategy"], "temperature": DEFAULTS["temperature"]}
VARIATIONS = {"n": DEFAULTS["variations"], "strength": DEFAULTS["strength"]}
BATCH = {"n": DEFAULTS["batch_results"], "seed": 0, "strategy": DEFAULTS["strategy"], "temperature": DEFAULTS["temperature"]}  # fmt: skip
DOORS: dict[str, tuple[Any, dict[str, Any]]] = {
    "Scene.sample": (Scene.sample, SAMPLING),
    "Scene.stream": (Scene.stream, SAMPLING),
    "Completer.complete": (Completer.complete, SAMPLING),
    "Completion.variations": (Completion.variations, VARIATIONS),
    "Scene.interpolate": (Scene.interpolate, {"steps": DEFAULTS["steps"]}),
    "Completer": (Completer, {"device": DEFAULTS["device"]}),
    "CompleterOptions": (CompleterOptions, {"device": DEFAULTS["device"]}),
    "batch": (Sampling, BATCH),
    "studio samples": (api.Samples, SAMPLING),
    "studio complete": (api.Complete, SAMPLING),
    "studio variations": (api.Variations, VARIATIONS),
    "studio interpolation": (api.Interpolation, {"steps": DEFAULTS["steps"]}),
}


@pytest.mark.parametrize("door", DOORS)
def test_defaults_agree_at_every_door_of_python(door: str) -> None:
    function, expected = DOORS[door]
    assert defaults_of(function) == expected


def test_the_defaults_of_the_commands() -> None:
    one = vars(parser().parse_args(["complete", "photo", "mask", "-o", "out"]))
    many = vars(parser().parse_args(["batch", "photos", "-o", "out"]))
    assert {key: one[key] for key in SAMPLING} == SAMPLING
    assert {key: many[key] for key in BATCH} == BATCH
    assert one["device"] == many["device"] == Service(token="x" * 16).completer.device == DEFAULTS["device"]
    assert one["precision"] is many["precision"] is None, "the completer's own default"


def test_the_http_description() -> None:
    schemas = HTTP["components"]["schemas"]
    for kind in ("Samples", "Complete"):
        found = schemas[kind]["properties"]
        assert found["strategy"] == {"enum": CONTRACT["strategies"], "default": DEFAULTS["strategy"]}
        assert (found["n"]["default"], found["n"]["maximum"]) == (DEFAULTS["results"], LIMITS["max_http_results"])
        limits = found["temperature"]["default"], found["temperature"]["maximum"]
        assert limits == (DEFAULTS["temperature"], LIMITS["max_temperature"])
    for kind in ("NewScene", "Complete"):
        found = schemas[kind]["properties"]
        assert found["context"]["maximum"] == LIMITS["max_context"]
        *others, last = (entry["name"] for entry in BROWSERS)
        assert found["photo"]["description"] == f"a {', '.join(others)} or {last} file"
    found = schemas["Variations"]["properties"]
    assert (found["n"]["default"], found["n"]["maximum"]) == (DEFAULTS["variations"], LIMITS["max_http_results"])
    limits = found["strength"]["default"], found["strength"]["maximum"]
    assert limits == (DEFAULTS["strength"], LIMITS["max_strength"])
    found = schemas["Interpolation"]["properties"]["steps"]
    assert (found["default"], found["maximum"]) == (DEFAULTS["steps"], LIMITS["max_http_results"])
    assert schemas["Error"]["properties"]["kind"]["enum"] == [*python.HTTP_STATUS, "Refused", "InternalError"]
    for kind in ("Variations", "Interpolation", "Replay"):
        for name, value in schemas[kind]["properties"].items():
            if name in ("token", "first", "second"):
                assert value["maxLength"] == LIMITS["max_token_length"]


def test_the_studios_page() -> None:
    offered = re.findall(r'<option value="(\w+)">', PAGE)
    assert offered[0] == DEFAULTS["strategy"], "what the page shows first is what it asks for"
    assert sorted(offered) == sorted(CONTRACT["strategies"])
    assert f'id="n" type="number" min="1" max="{LIMITS["max_http_results"]}" value="{DEFAULTS["results"]}"' in PAGE
    assert re.search(rf'id="temperature"[^>]* value="{DEFAULTS["temperature"]:g}"', PAGE)
    assert re.search(rf'id="strength"[^>]* value="{DEFAULTS["strength"]:g}"', PAGE)
    assert f'maxlength="{LIMITS["max_token_length"]}"' in PAGE
    kinds = [entry["media_type"] for entry in BROWSERS]
    assert re.findall(r'accept="([^"]*)"', PAGE) == [",".join(kinds)] * 2
    listed = re.search(r"const KINDS = (\[.*?\]);", SCRIPT)
    assert listed is not None
    assert json.loads(listed[1]) == kinds


def test_every_format_is_pillows_and_has_its_suffixes() -> None:
    known = Image.registered_extensions()
    for entry in CONTRACT["image_formats"]:
        assert {known[suffix] for suffix in entry["suffixes"]} == {entry["name"]}
        assert entry["media_type"] == Image.MIME[entry["name"]]


def test_every_door_finds_every_format(tmp_path: Path) -> None:
    from training.data import find_images

    names = {f"photo{suffix}" for entry in CONTRACT["image_formats"] for suffix in entry["suffixes"]}
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / "photo.txt").touch()
    assert {path.name for path in photos_in(tmp_path)} == {path.name for path in find_images(tmp_path)} == names
    for entry in BROWSERS:
        picture = tmp_path / f"real{entry['suffixes'][0]}"
        Image.fromarray(np.zeros((4, 5, 3), np.uint8)).save(picture, entry["name"])
        assert api.check_picture(picture.read_bytes(), "photo") == entry["media_type"]


def test_nobody_keeps_a_list_of_formats_of_their_own() -> None:
    sources = [
        p for folder in ("picme_sdk", "training", "export", "fuzz", "benchmarks") for p in (ROOT / folder).rglob("*.py")
    ]
    lists = [p.name for p in sources if re.search(r"""["']\.jpeg["']|["']WEBP["']""", p.read_text())]
    assert lists == ["contract.py"]


def test_the_http_description_names_every_kind_of_photo_that_the_studio_sends() -> None:
    content = HTTP["paths"]["/api/photo"]["get"]["responses"]["200"]["content"]
    assert set(content) == {f["media_type"] for f in CONTRACT["image_formats"] if f["browsers"]}
