"""What the studio's HTTP API answers, and that its OpenAPI file says so."""

import base64
import http.client
import io
import json
import re
import subprocess
import sys
import threading
import time
from dataclasses import MISSING, fields
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from picme_sdk import Completer, __version__
from picme_sdk.studio import api
from picme_sdk.studio.app import ROUTES
from tests.conftest import ROOT, read_image
from tests.picme_sdk.studio.conftest import ASKED, MASK, PHOTO, Answer, Server, png, text


@pytest.fixture(scope="module")
def scene(studio: Server) -> str:
    return studio.scene()


@pytest.fixture(scope="module")
def completer(bundle_folder: Path) -> Completer:
    return Completer(bundle_folder)


def picture(data: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(data)))


def test_health_model_and_first_photo(studio: Server) -> None:
    health = studio.call("GET", "/api/health").json()
    assert health["status"] == "ok"
    model = studio.call("GET", "/api/model").json()
    assert (model["image_size"], model["device"]) == (32, "cpu")
    first = studio.call("GET", "/api/photo")
    assert first.headers["content-type"] == "image/jpeg"
    assert first.body == (ROOT / "picme_sdk/samples/chelsea.jpg").read_bytes()


def test_a_scene_says_its_size_box_weights_and_ambiguity(studio: Server, completer: Completer) -> None:
    found = studio.post("/api/scenes", ASKED).json()
    expected = completer.encode(PHOTO, MASK)
    assert found["size"] == [60, 50]
    assert found["box"] == [20, 20, 40, 35]
    assert [(p["primitive"], p["weight"]) for p in found["primitives"]] == expected.primitives
    assert found["ambiguity"] == expected.ambiguity
    assert studio.call("GET", f"/api/scenes/{found['id']}").json() == found
    assert studio.call("DELETE", f"/api/scenes/{found['id']}").status == 204
    assert studio.call("GET", f"/api/scenes/{found['id']}").status == 404
    assert studio.call("DELETE", f"/api/scenes/{found['id']}").status == 404


def test_samples_are_those_of_the_sdk(studio: Server, scene: str, completer: Completer) -> None:
    answer = studio.post(f"/api/scenes/{scene}/samples", {"n": 3, "seed": 7})  # both doors with their defaults
    assert answer.headers["content-type"] == "application/x-ndjson"
    expected = completer.encode(PHOTO, MASK).sample(3, 7)
    for line, result in zip(answer.lines(), expected, strict=True):
        assert (line["token"], line["primitive"]) == (result.token, result.primitive)
        assert (line["weight"], line["log_density"]) == (result.weight, result.log_density)
        left, top, right, bottom = line["box"]
        assert np.array_equal(np.asarray(picture(line["preview"])), result.image[top:bottom, left:right])


def test_variations_interpolation_replay_and_image(studio: Server, scene: str, completer: Completer) -> None:
    first, second = studio.post(f"/api/scenes/{scene}/samples", {"n": 2, "seed": 1}).lines()
    varied = studio.post(f"/api/scenes/{scene}/variations", {"token": first["token"], "n": 3, "seed": 5}).lines()
    assert len({line["token"] for line in varied}) == 3
    assert {line["primitive"] for line in varied} == {first["primitive"]}
    ends = {"first": first["token"], "second": second["token"], "steps": 4}
    path = studio.post(f"/api/scenes/{scene}/interpolation", ends).lines()
    assert len(path) == 4
    assert (path[0]["preview"], path[-1]["preview"]) == (first["preview"], second["preview"])
    (again,) = studio.post(f"/api/scenes/{scene}/replay", {"token": varied[1]["token"]}).lines()
    assert again["preview"] == varied[1]["preview"]
    whole = studio.post(f"/api/scenes/{scene}/image", {"token": varied[1]["token"]})
    assert whole.headers["content-type"] == "image/png"
    image = Image.open(io.BytesIO(whole.body))
    assert image.text["picme-token"] == varied[1]["token"]
    expected = completer.encode(PHOTO, MASK).replay(varied[1]["token"]).image
    assert np.array_equal(np.asarray(image), expected)


def test_only_one_idea(studio: Server, scene: str) -> None:
    lines = studio.post(f"/api/scenes/{scene}/samples", {"n": 5, "primitive": 2}).lines()
    assert [line["primitive"] for line in lines] == [2] * 5


def test_complete_in_one_request(studio: Server, completer: Completer) -> None:
    lines = studio.post("/api/complete", {**ASKED, "n": 2, "seed": 3}).lines()
    for line, result in zip(lines, completer.complete(PHOTO, MASK, 2, 3, "diverse"), strict=True):
        image = picture(line["image"])
        assert image.text["picme-token"] == line["token"] == result.token
        assert np.array_equal(np.asarray(image), result.image)
        assert np.array_equal(np.asarray(image)[MASK == 0], PHOTO[MASK == 0])


@pytest.mark.parametrize("mode", ["L", "LA", "RGBA", "P", "1"])
def test_photos_of_other_modes(studio: Server, mode: str) -> None:
    photo = Image.fromarray(PHOTO).convert(mode)
    (line,) = studio.post("/api/complete", {**ASKED, "photo": text(png(photo)), "n": 1}).lines()
    assert picture(line["image"]).size == (60, 50)
    made = studio.post("/api/scenes", {**ASKED, "photo": text(png(photo))}).json()
    (line,) = studio.post(f"/api/scenes/{made['id']}/samples", {"n": 1}).lines()
    assert picture(line["preview"]).size == (20, 15)


def test_turned_and_cmyk_jpegs_and_webp(studio: Server) -> None:
    def encoded(picture: Image.Image, kind: str, **options: object) -> str:
        stream = io.BytesIO()
        picture.save(stream, kind, **options)
        return text(stream.getvalue())

    exif = Image.Exif()
    exif[0x0112] = 6  # shown turned by a quarter
    turned = encoded(Image.fromarray(PHOTO).transpose(Image.Transpose.ROTATE_90), "JPEG", exif=exif)
    for photo in (turned, encoded(Image.fromarray(PHOTO).convert("CMYK"), "JPEG"), encoded(Image.fromarray(PHOTO), "WEBP")):  # fmt: skip
        (line,) = studio.post("/api/complete", {**ASKED, "photo": photo, "n": 1}).lines()
        assert (picture(line["image"]).size, picture(line["image"]).mode) == ((60, 50), "RGB")


def test_without_a_mask_transparent_pixels_are_the_hole(studio: Server) -> None:
    photo = Image.fromarray(np.dstack([PHOTO, 255 - MASK]))
    made = studio.post("/api/scenes", {"photo": text(png(photo))})
    assert made.json()["box"] == [20, 20, 40, 35]


@pytest.mark.parametrize(
    ("path", "asked", "says"),
    [
        ("samples", {"n": 0}, "n=0"), ("samples", {"n": 65}, "at most 64"), ("samples", {"n": "6"}, "n='6'"), ("samples", {"n": True}, "n=True"),
        ("samples", {"seed": -1}, "seed=-1"), ("samples", {"seed": 1 << 64}, "seed"), ("samples", {"primitive": 9}, "primitive=9"),
        ("samples", {"strategy": "best"}, "strategy='best'"), ("samples", {"temperature": "hot"}, "temperature"), ("samples", {"m": 3}, "the keys m"),
        ("samples", [1], "no object"), ("variations", {}, "without token"), ("variations", {"token": "x"}, "token 'x'"), ("variations", {"token": 7}, "token 7"),
        ("interpolation", {"first": "x", "second": "y"}, "token 'x'"), ("replay", {"token": "A" * 5000}, "token"), ("image", {"token": ""}, "token ''"),
    ],
)  # fmt: skip
def test_mistakes_are_explained(studio: Server, scene: str, path: str, asked: object, says: str) -> None:
    answer = studio.post(f"/api/scenes/{scene}/{path}", asked)
    assert answer.status == 400
    assert says in answer.json()["error"]
    assert " | expected " in answer.json()["error"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "no JSON"), (b"{", "no JSON"), (b"[" * 100_000, "no JSON"), (b"1" * 10_000, "no JSON"), (b"\xff", "no JSON"), (b"{}", "without photo"),
        (b'{"photo": 1}', "no base64"), (b'{"photo": "\\u00e9"}', "no base64"), (b'{"photo": "/etc/passwd"}', "no base64"),
        (json.dumps({**ASKED, "mask": ASKED["photo"]}).encode(), "%"), (json.dumps({**ASKED, "mask": None}).encode(), "without alpha"),
        (json.dumps({**ASKED, "mask": text(png(Image.new("L", (60, 50))))}).encode(), "an empty mask"),
        (json.dumps({**ASKED, "mask": text(png(Image.new("L", (6, 5), 255)))}).encode(), "equal sizes"),
        (json.dumps({**ASKED, "context": "all"}).encode(), "context"),
    ],
)  # fmt: skip
def test_scenes_that_can_not_be_made(studio: Server, body: bytes, says: str) -> None:
    answer = studio.call("POST", "/api/scenes", body)
    assert answer.status == 400
    assert says in answer.json()["error"]


def test_a_hundred_jobs_at_once(studio: Server, scene: str, completer: Completer) -> None:
    """Some wait, others are told to come back; nobody gets another's result."""
    answers: dict[int, Answer] = {}

    def ask(seed: int) -> None:
        answers[seed] = studio.post(f"/api/scenes/{scene}/samples", {"n": 32, "seed": seed})

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    statuses = [answer.status for answer in answers.values()]
    assert set(statuses) == {200, 429}
    assert statuses.count(200) >= 9
    expected = completer.encode(PHOTO, MASK)
    for seed, answer in answers.items():
        if answer.status == 200:
            tokens = [result.token for result in expected.sample(32, seed, "diverse")]
            assert [line["token"] for line in answer.lines()] == tokens
        else:
            assert answer.headers["retry-after"] == "1"
    assert studio.call("GET", "/api/health").json()["jobs"] == 0


def test_results_come_one_by_one_and_stop_when_nobody_listens(studio: Server, scene: str) -> None:
    link = http.client.HTTPConnection(studio.host, studio.port, timeout=30)
    body = json.dumps({"n": 64})
    headers = {"Authorization": f"Bearer {studio.token}", "Content-Type": "application/json"}
    link.request("POST", f"/api/scenes/{scene}/samples", body, headers)
    response = link.getresponse()
    assert json.loads(response.readline())["token"], "the first is here while the others are being made"
    response.close()
    link.close()
    until = time.monotonic() + 20
    while studio.call("GET", "/api/health").json()["jobs"]:
        assert time.monotonic() < until
        time.sleep(0.02)


def test_the_store_is_bounded(studio: Server) -> None:
    made = [studio.scene() for _ in range(10)]
    assert studio.call("GET", "/api/health").json()["scenes"] == 8
    assert studio.call("GET", f"/api/scenes/{made[0]}").status == 404
    assert len(set(made)) == 10
    assert min(len(handle) for handle in made) >= 20
    assert studio.post(f"/api/scenes/{made[-1]}/samples", {"n": 1}).status == 200


def test_openapi_describes_exactly_the_routes(studio: Server) -> None:
    described = json.loads(studio.call("GET", "/openapi.json", authorization=None).body)
    methods = {(p, m.upper()) for p, found in described["paths"].items() for m in found if m != "parameters"}
    assert methods == {(path, method) for path, method, _, _ in ROUTES}
    schemas = described["components"]["schemas"]
    for path, method, _, takes in ROUTES:
        route = described["paths"][path][method.lower()]
        assert ("requestBody" in route) == (takes is not None)
        if takes is None:
            continue
        assert route["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith(f"/{takes.__name__}")
        schema = schemas[takes.__name__]
        assert schema["additionalProperties"] is False
        assert set(schema.get("required", ())) == {f.name for f in fields(takes) if f.default is MISSING}
        defaults = {f.name: f.default for f in fields(takes) if f.default is not MISSING}
        assert {n: p["default"] for n, p in schema["properties"].items() if "default" in p} == defaults
    assert schemas["Samples"]["properties"]["n"]["maximum"] == api.MAX_HTTP_RESULTS
    assert described["info"]["version"] == __version__


def test_openapi_describes_the_answers(studio: Server) -> None:
    schemas = json.loads(studio.call("GET", "/openapi.json").body)["components"]["schemas"]
    made = studio.post("/api/scenes", ASKED).json()
    assert made.keys() == schemas["Scene"]["properties"].keys()
    (line,) = studio.post(f"/api/scenes/{made['id']}/samples", {"n": 1}).lines()
    assert line.keys() == schemas["Result"]["properties"].keys()
    (line,) = studio.post("/api/complete", {**ASKED, "n": 1}).lines()
    assert line.keys() == schemas["WholeResult"]["properties"].keys()
    assert studio.call("GET", "/api/model").json().keys() == schemas["Model"]["properties"].keys()
    assert studio.call("GET", "/api/health").json().keys() == schemas["Health"]["properties"].keys()
    assert studio.call("GET", "/api/none").json().keys() == schemas["Error"]["properties"].keys()


@pytest.mark.parametrize("package", ["starlette", "uvicorn"])
def test_a_missing_package_names_the_pip_line(package: str) -> None:
    code = f"""
import sys
for name in {[package, f"{package}.applications"]}: sys.modules[name] = None
from picme_sdk.errors import BackendUnavailable
from picme_sdk.studio import api, app, guard, pictures, store
class Nothing: pass
try:
    app.serve(Nothing(), app.Options(browser=False), print)
except BackendUnavailable as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert "pip install 'picme-sdk[studio]'" in done.stdout, done.stderr


def test_the_example_of_the_document_runs(studio: Server, tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(base64.b64decode(ASKED["photo"]))
    (tmp_path / "mask.png").write_bytes(base64.b64decode(ASKED["mask"]))
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/use/studio.md").read_text(), re.DOTALL)
    given = f"ADDRESS, TOKEN = {f'http://{studio.own}'!r}, {studio.token!r}\n"
    subprocess.run([sys.executable, "-W", "error", "-c", given + code], cwd=tmp_path, check=True)
    assert read_image(tmp_path / "result-2.png").size == (60, 50)
