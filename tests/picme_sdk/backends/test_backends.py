"""Choice of a back end, and every decision of the TensorRT code that needs no GPU."""

import ast
import gc
import hashlib
import logging
import re
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from picme_sdk import Completer, backends
from picme_sdk.backends import open_backend
from picme_sdk.backends.cuda import nvidia_capability
from picme_sdk.backends.onnxruntime import DecoderPool
from picme_sdk.backends.protocol import Option
from picme_sdk.backends.tensorrt import choose_engines, fits, rebuild
from picme_sdk.bundle.bundle import Bundle
from picme_sdk.bundle.manifest import manifest_bytes
from picme_sdk.errors import BackendUnavailable, BadArgument, BadBundle
from tests.conftest import ROOT, TINY_FORMAT_1
from tests.vectors.make import photo as formula


@pytest.fixture(scope="module")
def bundle(bundle_folder: Path) -> Bundle:
    return Bundle(bundle_folder)


class Fake:
    def __init__(self, device: str) -> None:
        self.name, self.device, self.batch = f"fake {device}", device, 1


def options(card: bool = True, **works: bool) -> tuple[Option, ...]:
    """A back end for each device, of which some work; all but the CPU's need a card."""

    def opener(device: str):
        def open_it(bundle: Bundle, threads: int | None, precision: str) -> Fake:
            if not works[device]:
                raise BackendUnavailable(f"no {device}", "it", f"install {device}")
            return Fake(device)

        return open_it

    return tuple(Option(device, device, lambda d=device: card or d == "cpu", opener(device)) for device in works)


def test_auto_takes_the_best_that_works_and_warns_once(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(backends, "OPTIONS", options(tensorrt=False, cuda=False, cpu=True))
    with caplog.at_level(logging.WARNING):
        assert open_backend(bundle, "auto", None).device == "cpu"
    assert len(caplog.records) == 1
    assert "no tensorrt (install tensorrt); no cuda (install cuda)" in caplog.text
    caplog.clear()
    monkeypatch.setattr(backends, "OPTIONS", options(tensorrt=True, cuda=True, cpu=True))
    assert open_backend(bundle, "auto", None).device == "tensorrt"
    assert not caplog.records


def test_auto_is_silent_where_there_is_no_card(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(backends, "OPTIONS", options(card=False, tensorrt=False, cpu=True))
    assert open_backend(bundle, "auto", None).device == "cpu"
    assert not caplog.records


def test_a_named_device_never_falls_back(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "OPTIONS", options(cuda=False, cpu=True))
    with pytest.raises(BackendUnavailable, match=r"no cuda.*install cuda"):
        open_backend(bundle, "cuda", None)


def test_a_silently_missing_provider_is_noticed(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxruntime drops a provider that it can't load, and goes on with the CPU."""
    import onnxruntime

    real = onnxruntime.InferenceSession
    monkeypatch.setattr(
        onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"]
    )
    monkeypatch.setattr(
        onnxruntime,
        "InferenceSession",
        lambda model, opts, providers: real(model, opts, providers=["CPUExecutionProvider"]),
    )
    with pytest.raises(BackendUnavailable, match="without CUDAExecutionProvider"):
        open_backend(bundle, "cuda", None)


def test_other_precisions_of_the_bundle_can_be_chosen(bundle_folder: Path) -> None:
    photo, mask = formula(32, 32), np.zeros((32, 32), np.uint8)
    mask[8:24, 8:24] = 255
    with Completer(bundle_folder, "cpu") as plain, Completer(bundle_folder, "cpu", precision="float16") as half:
        a, b = (c.complete(photo, mask, n=1, seed=1)[0] for c in (plain, half))
        skips = [c.pipeline.backend.encode(photo, mask).skips for c in (plain, half)]
    assert [array["skip_0"].dtype for array in skips] == [np.float32, np.float16], "really another graph"
    assert a.token == b.token
    assert np.abs(a.image.astype(int) - b.image).max() <= 4
    with pytest.raises(BadArgument, match="float32, float16"):
        Completer(bundle_folder, "cpu", precision="int8")


@pytest.mark.parametrize("n", [1, 3, 7], ids=["shared", "side by side", "both"])
def test_results_do_not_depend_on_the_number_of_cores(
    bundle_folder: Path, monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    """Three cores decode three results side by side, and share what is left."""
    photo, mask = formula(32, 32), np.zeros((32, 32), np.uint8)
    mask[8:24, 8:24] = 255
    counts: list[int] = []

    class Counting(DecoderPool):
        """A pool that records how many results each of its own runs decodes."""

        def __init__(self, session: object, cores: int) -> None:
            super().__init__(self, cores)
            self.inner = session

        def run(self, names: None, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
            counts.append(len(feed["z"]))
            return self.inner.run(names, feed)

    monkeypatch.setattr("picme_sdk.backends.onnxruntime.DecoderPool", Counting)
    with Completer(bundle_folder, "cpu", 1) as one:
        first = [result.image for result in one.complete(photo, mask, n=n, seed=5)]
    assert counts == [], "one core has no pool"
    with Completer(bundle_folder, "cpu", 3) as three:
        second = [result.image for result in three.complete(photo, mask, n=n, seed=5)]
    assert counts == [1] * (n - n % 3)
    np.testing.assert_array_equal(first, second)


def test_decoding_threads_end_with_the_completer(bundle_folder: Path) -> None:
    photo, mask = formula(32, 32), np.zeros((32, 32), np.uint8)
    mask[8:24, 8:24] = 255

    def decoding() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name.startswith("picme-decoder")}

    before = decoding()
    completer = Completer(bundle_folder, "cpu", threads=2)
    completer.complete(photo, mask, n=4, seed=1)
    started = decoding() - before
    assert started
    completer.close()
    gc.collect()
    for thread in started:
        thread.join(10)
        assert not thread.is_alive()


def with_graph(folder: Path, name: str, change: Callable[[onnx.ModelProto], object]) -> Bundle:
    """The bundle in a folder after one of its float32 graphs was changed."""
    bundle = Bundle(folder)
    entry = bundle.manifest.graph(name)
    model = onnx.load_from_string(bundle.read(entry))
    change(model)
    data = model.SerializeToString()
    (folder / entry.file).write_bytes(data)
    changed = replace(entry, sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))
    graphs = tuple(changed if graph is entry else graph for graph in bundle.manifest.graphs)
    (folder / "picme.json").write_bytes(manifest_bytes(replace(bundle.manifest, graphs=graphs)))
    return Bundle(folder)


@pytest.mark.parametrize("flag", [0, 1])
def test_the_encoders_flag_decides_whether_its_outputs_are_finite(
    bundle_folder: Path, tmp_path: Path, flag: int
) -> None:
    """A graph that writes a fixed flag: what is in the arrays is no longer looked at."""

    def fix_flag(model: onnx.ModelProto) -> None:
        last = next(node for node in model.graph.node if "finite" in node.output)
        last.output[list(last.output).index("finite")] = "computed"
        value = onnx.numpy_helper.from_array(np.array([flag], np.uint8))
        model.graph.node.append(onnx.helper.make_node("Constant", [], ["finite"], value=value))

    bundle = with_graph(Path(shutil.copytree(bundle_folder, tmp_path / "fixed")), "encoder", fix_flag)
    backend = open_backend(bundle, "cpu", 1)
    encoded = backend.encode(formula(32, 32), np.full((32, 32), 255, np.uint8))
    assert encoded.finite is bool(flag)
    pictures = backend.decode(encoded.skips, np.zeros((2, bundle.manifest.latent), np.float32))
    assert pictures.shape == (2, 32, 32, 3), "the flag is no skip"


def test_without_a_flag_the_arrays_themselves_are_checked(tmp_path: Path) -> None:
    """An encoder as format 1 had it: a weight that is not finite shows in the context or a skip."""

    def damage(model: onnx.ModelProto) -> None:
        biases = [weights for weights in model.graph.initializer if len(weights.dims) == 1 and weights.data_type == 1]
        for bias in biases:
            bias.CopyFrom(onnx.numpy_helper.from_array(np.full(bias.dims, np.nan, np.float32), bias.name))

    square, mask = formula(32, 32), np.full((32, 32), 255, np.uint8)
    assert open_backend(Bundle(TINY_FORMAT_1), "cpu", 1).encode(square, mask).finite
    bundle = with_graph(Path(shutil.copytree(TINY_FORMAT_1, tmp_path / "damaged")), "encoder", damage)
    assert not open_backend(bundle, "cpu", 1).encode(square, mask).finite


def test_graphs_with_other_tensors_than_the_manifest_are_refused(bundle_folder: Path, tmp_path: Path) -> None:
    def rename(model: onnx.ModelProto) -> None:
        model.graph.input[0].name = "other"
        for node in model.graph.node:
            node.input[:] = ["other" if name == "context" else name for name in node.input]

    bundle = with_graph(Path(shutil.copytree(bundle_folder, tmp_path / "changed")), "mixture", rename)
    with pytest.raises(BadBundle, match=r"mixture\.onnx has the tensors"):
        open_backend(bundle, "cpu", None)


@pytest.mark.parametrize(
    ("target", "capability", "answer"),
    [("ampere+", 80, True), ("ampere+", 120, True), ("ampere+", 75, False), ("sm_86+sm_89", 89, True), ("sm_86", 89, False), ("sm_89", None, True)],
)  # fmt: skip
def test_engines_fit_their_cards(target: str, capability: int | None, answer: bool) -> None:
    assert fits(target, capability) is answer


def test_engines_are_chosen_by_module_version_and_card(bundle: Bundle) -> None:
    version = bundle.manifest.engines[0].version
    chosen = choose_engines(bundle.manifest, "tensorrt_rtx", version, 89)
    assert {graph: e.precision for graph, e in chosen.items()} == {
        "encoder": "float16",
        "mixture": "float32",
        "decoder": "float16",
    }
    for module, wanted, card in (
        ("tensorrt", version, 89),
        ("tensorrt_rtx", "9.9.9", 89),
        ("tensorrt_rtx", version, 75),
    ):
        with pytest.raises(BackendUnavailable, match=rf"{wanted} on sm_{card}") as caught:
            choose_engines(bundle.manifest, module, wanted, card)
        assert (version in caught.value.given) == (module == "tensorrt_rtx"), "the message names what is there"


def test_the_cure_is_the_command_that_builds_engines(bundle: Bundle) -> None:
    assert f"--from-bundle {bundle.path}" in rebuild(bundle, "tensorrt_rtx")
    assert "--builder rtx" in rebuild(bundle, "tensorrt_rtx")


def test_no_driver_is_said_plainly() -> None:
    pytest.importorskip("cuda.bindings")
    if nvidia_capability() is not None:
        pytest.skip("a GPU is here")
    from picme_sdk.backends.cuda import open_cuda

    with pytest.raises(BackendUnavailable, match="no CUDA driver"):
        open_cuda()


def test_every_name_of_the_real_bindings_exists() -> None:
    """What can't run here can at least not be misspelt."""
    runtime = pytest.importorskip("cuda.bindings.runtime")
    trt = pytest.importorskip("tensorrt_rtx")
    cuda_source = (ROOT / "picme_sdk/backends/cuda.py").read_text()
    names = re.findall(r'_call\("(\w+)"', cuda_source) + re.findall(r"self\.api\.(\w+)", cuda_source)
    assert len(names) > 10
    assert [name for name in names if not hasattr(runtime, name)] == []
    for kind, member in re.findall(r"self\.api\.(cuda\w+)\.(cuda\w+)", cuda_source):
        assert hasattr(getattr(runtime, kind), member)

    tree = ast.parse((ROOT / "picme_sdk/backends/tensorrt.py").read_text())
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    classes = {
        trt.Runtime: ["deserialize_cuda_engine"],
        trt.ICudaEngine: ["create_execution_context"],
        trt.IExecutionContext: ["set_tensor_address", "set_input_shape", "execute_async_v3"],
        trt: ["Runtime", "Logger"],
    }
    for owner, members in classes.items():
        for member in members:
            assert member in used, "the list above must follow the code"
            assert hasattr(owner, member)
