"""Who gets through to the studio and who does not."""

import http.client
import io
import json
import socket
import struct
import time
import zlib
from pathlib import Path

import pytest
from PIL import Image

from picme_sdk.errors import BadArgument
from picme_sdk.studio.app import Options, serve
from picme_sdk.studio.guard import Guard
from tests.picme_sdk.studio.conftest import ASKED, Server, start, stop, text


def scenes(studio: Server) -> int:
    return int(studio.call("GET", "/api/health").json()["scenes"])


def test_every_answer_forbids_sniffing_caching_framing_and_foreign_resources(studio: Server) -> None:
    for path, status in (("/", 200), ("/studio.js", 200), ("/api/health", 200), ("/missing", 404), ("/api/none", 404)):
        answer = studio.call("GET", path)
        assert answer.status == status
        assert answer.headers["content-security-policy"].startswith("default-src 'self';")
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]
        assert "server" not in answer.headers


@pytest.mark.parametrize("host", ["evil.com", "evil.com:{port}", "127.0.0.1", "127.0.0.1:1", "localhost.evil.com:{port}", "127.0.0.1:{port}.evil.com", "[::2]:{port}", "", "0.0.0.0:{port}", "169.254.1.1:{port}"])  # fmt: skip
@pytest.mark.parametrize("path", ["/", "/api/health"])
def test_a_forged_host_is_misdirected(studio: Server, host: str, path: str) -> None:
    answer = studio.call("GET", path, host=host.format(port=studio.port))
    assert answer.status == 421
    assert "expected the address" in answer.json()["error"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_own_names_get_through(studio: Server, host: str) -> None:
    assert studio.call("GET", "/api/health", host=f"{host}:{studio.port}").status == 200


def test_no_host_or_two_hosts(studio: Server) -> None:
    for hosts in ([], [studio.own, "evil.com"]):
        with socket.create_connection((studio.host, studio.port)) as link:
            link.sendall(b"GET / HTTP/1.1\r\n" + b"".join(f"Host: {h}\r\n".encode() for h in hosts) + b"\r\n")
            assert link.recv(1000).split()[1] in (b"400", b"421")


@pytest.mark.parametrize("origin", ["null", "http://evil.com", "http://127.0.0.1:1", "http://localhost:{port}", "https://127.0.0.1:{port}", "http://127.0.0.1:{port}.evil.com", "http://[::1]:{port}", "file://"])  # fmt: skip
def test_a_foreign_origin_is_refused_even_with_the_token(studio: Server, origin: str) -> None:
    before = scenes(studio)
    answer = studio.post("/api/scenes", ASKED, origin=origin.format(port=studio.port))
    assert answer.status == 403
    assert scenes(studio) == before


@pytest.mark.parametrize("site", ["cross-site", "same-site", "nonsense"])
def test_fetch_metadata_of_another_site_is_refused(studio: Server, site: str) -> None:
    assert studio.post("/api/scenes", ASKED, sec_fetch_site=site).status == 403
    assert studio.call("GET", "/api/health", sec_fetch_site=site).status == 403


def test_the_own_page_and_tools_get_through(studio: Server) -> None:
    own = f"http://{studio.own}"
    assert studio.post("/api/scenes", ASKED, origin=own, sec_fetch_site="same-origin").status == 201
    assert studio.post("/api/scenes", ASKED).status == 201, "a tool sends neither"


@pytest.mark.parametrize("given", [None, "", "Bearer", "Bearer wrong", "Basic {token}", "{token}", "Bearer {token}x", "Bearer \xff"])  # fmt: skip
def test_the_token_is_needed_for_every_call(studio: Server, given: str | None) -> None:
    given = given and given.format(token=studio.token)
    paths = json.loads(studio.call("GET", "/openapi.json").body)["paths"]
    for path, methods in paths.items():
        for method in methods.keys() - {"parameters"}:
            assert studio.call(method.upper(), path, authorization=given).status == 401, path
    assert studio.call("GET", f"/api/health?token={studio.token}", authorization=None).status == 401
    assert studio.call("GET", "/", authorization=None).status == 200, "the page itself holds no secret"


def test_a_get_changes_nothing(studio: Server) -> None:
    before = scenes(studio)
    for path in ("/api/scenes", "/api/complete", f"/api/scenes/{studio.scene()}/samples"):
        assert studio.call("GET", path).status == 405
    assert scenes(studio) == min(before + 1, 8)


def test_a_preflight_gets_no_permission(studio: Server) -> None:
    asks = {"origin": "http://evil.com", "access_control_request_method": "POST"}
    for more in ({"authorization": None}, {}):
        answer = studio.call("OPTIONS", "/api/scenes", **asks, **more)
        assert answer.status == 403
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    assert studio.call("OPTIONS", "/api/scenes").status == 405


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "image/png", None])  # fmt: skip
def test_only_json_is_read(studio: Server, kind: str | None) -> None:
    assert studio.post("/api/scenes", ASKED, content_type=kind).status == 415


def test_an_announced_size_is_refused_before_it_comes(studio: Server) -> None:
    start = time.perf_counter()
    assert studio.call("POST", "/api/scenes", b"{", content_length=str(10 << 30)).status == 413
    assert studio.call("POST", "/api/scenes", b"{", content_length="9" * 40).status in (400, 413)
    assert studio.call("POST", "/api/scenes", b"{", content_length="-1").status == 400
    assert studio.call("POST", "/api/scenes", b"{", content_length="x").status == 400
    assert time.perf_counter() - start < 5


def test_a_body_without_an_announced_size_is_cut_off(studio: Server) -> None:
    link = http.client.HTTPConnection(studio.host, studio.port, timeout=30)
    sent = 0
    try:
        link.putrequest("POST", "/api/scenes")
        for name, value in (("Authorization", f"Bearer {studio.token}"), ("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")):  # fmt: skip
            link.putheader(name, value)
        link.endheaders()
        chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
        try:
            while sent < 400:
                link.send(chunk)
                sent += 1
            status = 413
        except OSError:  # closed on us in the middle of it
            status = 413
        try:
            status = link.getresponse().status
        except (OSError, http.client.HTTPException):
            assert sent < 400
    finally:
        link.close()
    assert status == 413
    assert sent < 200, "far from all was taken"
    assert studio.call("GET", "/api/health").json()["jobs"] == 0


def test_a_connection_that_says_nothing_holds_up_nobody(studio: Server) -> None:
    links = [socket.create_connection((studio.host, studio.port)) for _ in range(50)]
    try:
        for link in links:
            link.sendall(b"POST /api/scenes HTTP/1.1\r\nHost: ")
        assert studio.call("GET", "/api/health").status == 200
        assert studio.post("/api/scenes", ASKED).status == 201
    finally:
        for link in links:
            link.close()


@pytest.mark.parametrize("path", ["/../app.py", "/..%2fapp.py", "/%2e%2e%5capp.py", "//etc/passwd", "/etc/passwd", "/page/../app.py", "/windows/win.ini", "/index.html/../app.py", "/app.py", "/api/scenes/..%2f..%2fhealth", "/api/scenes/../photo/", "/%00"])  # fmt: skip
def test_no_path_leads_out(studio: Server, path: str) -> None:
    answer = studio.call("GET", path)
    assert answer.status in (400, 404)
    assert b"import" not in answer.body
    assert b"root:" not in answer.body


def test_websockets_are_not_spoken(studio: Server) -> None:
    asks = {"connection": "Upgrade", "upgrade": "websocket", "sec_websocket_version": "13", "sec_websocket_key": "AAAAAAAAAAAAAAAAAAAAAA=="}  # fmt: skip
    assert studio.call("GET", "/api/health", **asks, origin="http://evil.com").status == 403
    assert studio.call("GET", "/api/health", **asks).status == 200, "a plain answer, no upgrade"


def bomb() -> bytes:
    """A small PNG that declares 50,000 x 50,000 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 50_000, 50_000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(20_000))) + chunk(b"IEND", b"")  # fmt: skip


def tiff() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (60, 50)).save(stream, "TIFF")
    return stream.getvalue()


SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


@pytest.mark.parametrize(
    ("data", "status", "kind"),
    [
        (bomb(), 413, "ImageTooLarge"), (SVG, 400, "BadImage"), (b"<html><script>alert(1)</script>", 400, "BadImage"), (tiff(), 400, "BadImage"),
        (b"", 400, "BadImage"), (b"%!PS-Adobe-3.0 EPSF-3.0", 400, "BadImage"), (b"\x89PNG\r\n\x1a\n" + bytes(100), 400, "BadImage"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("field", ["photo", "mask"])
def test_other_pictures_are_refused_and_never_sent_back(
    studio: Server, data: bytes, status: int, kind: str, field: str
) -> None:
    answer = studio.post("/api/scenes", {**ASKED, field: text(data)})
    assert answer.status == status
    assert answer.json()["kind"] == kind
    assert answer.headers["content-type"] == "application/json"
    assert b"script" not in answer.body
    assert b"Traceback" not in answer.body


def test_the_other_loopback_address_works(bundle_folder: Path) -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    server = start(bundle_folder, host="::1")
    try:
        assert server.address.startswith("http://[::1]:")
        assert server.call("GET", "/api/health", origin=f"http://[::1]:{server.port}").status == 200
        assert server.call("GET", "/api/photo").status == 204
    finally:
        assert stop(server) == ""


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (Options(host="0.0.0.0"), "add --token"), (Options(host="192.168.0.2"), "add --token"), (Options(token="short"), "at least 16"),  # noqa: S104, S106
        (Options(token="spaces and # and +"), "at least 16"), (Options(host="192.0.2.1", token="t" * 20), "is not available"), (Options(port=70000), "is not available"),  # noqa: S106
    ],
)  # fmt: skip
def test_other_addresses_need_a_token(options: Options, says: str) -> None:
    with pytest.raises(BadArgument, match=says):
        serve(None, options, lambda address: None)  # type: ignore[arg-type]


def test_hosts_where_others_may_come() -> None:
    async def nothing(scope: object, receive: object, send: object) -> None: ...

    everywhere = Guard(nothing, "t", "0.0.0.0", 8000)  # noqa: S104
    assert everywhere.is_own("192.168.0.7:8000")
    assert everywhere.is_own("[fe80::1]:8000")
    assert not everywhere.is_own("evil.com:8000"), "a name may have been rebound"
    named = Guard(nothing, "t", "studio.lan", 80)
    assert named.is_own("studio.lan")
    assert named.is_own("[::1]")
    assert not named.is_own("192.168.0.7")
