"""The three graphs: their contract, and that rearranging for speed changes no numbers."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from export.graphs import DecoderGraph, EncoderGraph
from export.onnx_files import to_onnx
from export.verify import hard_photos
from tests.conftest import ROOT
from training.model import Picme, PicmeConfig


def test_graphs_keep_their_contract(graphs: dict[str, onnx.ModelProto]) -> None:
    for graph in graphs.values():
        assert [(o.domain, o.version) for o in graph.opset_import] == [("", 20)]
        onnx.checker.check_model(graph, full_check=True)
        assert not graph.metadata_props
        assert str(ROOT) not in str(graph), "nothing of the exporting machine"
    first = {node.input[0]: node.op_type for node in graphs["encoder"].graph.node if node.input[0] in ("image", "mask")}
    assert first == {"image": "Cast", "mask": "Cast"}
    assert next(n.op_type for n in graphs["decoder"].graph.node if "image" in n.output) == "Cast"


def test_fp16_graphs_compute_in_half(exported_folder: Path) -> None:
    for name in ("encoder", "decoder"):
        model = onnx.load(exported_folder / f"{name}.fp16.onnx")
        weights = [t for t in model.graph.initializer if len(t.dims) == 4]
        assert {t.data_type for t in weights} == {onnx.TensorProto.FLOAT16}


def test_encoder_never_looks_into_the_hole(exported_folder: Path) -> None:
    session = onnxruntime.InferenceSession(exported_folder / "encoder.onnx")
    image, mask = hard_photos(32)["photo"]
    other = np.where(mask >= 128, 255 - image, image)
    first, second = (session.run(None, {"image": i, "mask": mask}) for i in (image, other))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    faint = np.where(mask >= 128, 128, 127).astype(np.uint8)
    assert all(
        np.array_equal(a, b) for a, b in zip(first, session.run(None, {"image": image, "mask": faint}), strict=True)
    )


@pytest.fixture(params=[(32, 4, (16, 24)), (64, 4, (8, 12, 16)), (32, 2, (8, 8, 8))], ids=str)
def shaped(request: pytest.FixtureRequest) -> Picme:
    """Networks of other sizes, patches and numbers of stages."""
    size, patch, widths = request.param
    blocks = tuple(1 for _ in widths)
    torch.manual_seed(0)
    return Picme(
        PicmeConfig(
            image_size=size,
            patch=patch,
            widths=widths,
            encoder_blocks=blocks,
            decoder_blocks=blocks,
            code=8,
            latent=6,
        )
    ).eval()


def test_the_rearranged_encoder_sees_what_the_network_sees(shaped: Picme) -> None:
    size = shaped.config.image_size
    image, mask = torch.randint(0, 256, (2, 1, size, size, 3), dtype=torch.uint8).unbind(0)
    mask = (mask[..., :1] > 170).to(torch.uint8) * 255
    hole = (mask.permute(0, 3, 1, 2) > 0).float()
    with torch.no_grad():
        context, skips = shaped.encode((image.permute(0, 3, 1, 2) / 127.5 - 1) * (1 - hole), hole)
        *outputs, finite = EncoderGraph(shaped)(image, mask)
    for expected, output in zip((context, *skips), outputs, strict=True):
        torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)
    assert (finite.dtype, finite.tolist()) == (torch.uint8, [1])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["context", "skip"])
def test_the_encoder_says_if_a_value_is_not_finite(shaped: Picme, value: float, where: str) -> None:
    """One value in one place, in torch and in ONNX Runtime."""
    size = shaped.config.image_size
    with torch.no_grad():
        if where == "context":
            shaped.context_head.out.bias[0] = value
        else:
            list(shaped.projections.values())[-1].bias[0] = value
    image, mask = np.full((1, size, size, 3), 90, np.uint8), np.zeros((1, size, size, 1), np.uint8)
    assert EncoderGraph(shaped)(torch.from_numpy(image), torch.from_numpy(mask))[-1].tolist() == [0]
    graph = to_onnx(shaped, 4, ("encoder",))["encoder"]
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    assert session.run(["finite"], {"image": image, "mask": mask})[0].tolist() == [0]


def test_the_rearranged_decoder_paints_what_the_network_paints(shaped: Picme) -> None:
    model, size = shaped, shaped.config.image_size
    with torch.no_grad():
        for lift in model.decoder.lifts.values():
            lift.weight.add_(torch.randn_like(lift.weight) * 0.1)
        skips = model.encode(torch.rand(1, 3, size, size), torch.zeros(1, 1, size, size)).skips
        z = torch.randn(3, 6)
        expected = (model.decode(skips, z) * 127.5 + 127.5).round().clamp(0, 255).permute(0, 2, 3, 1)
        painted = DecoderGraph(model)(z, list(skips)).float()
    assert (painted - expected).abs().max() <= 1
    assert (painted != expected).float().mean() < 1e-3, "only where rounding is a tie"
