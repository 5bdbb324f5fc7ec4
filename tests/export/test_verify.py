"""The gates: they pass what is equal and stop what is not."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from export.graphs import graph_specs
from export.onnx_files import half, to_onnx
from export.verify import Chain, hard_photos, latents, verify
from picme_sdk.contract import GRAPHS
from picme_sdk.errors import ExportError
from training.checkpoint import load_weights


@pytest.mark.parametrize("graph", GRAPHS)
def test_a_graph_that_differs_from_torch_fails_its_gate(
    checkpoint: Path, graphs: dict[str, onnx.ModelProto], graph: str
) -> None:
    model, _, _ = load_weights(checkpoint)
    damaged = onnx.ModelProto.FromString(graphs[graph].SerializeToString())
    weight = next(t for t in damaged.graph.initializer if t.name.endswith("bias") and t.dims[0] > 3)
    weight.raw_data = (np.frombuffer(weight.raw_data, np.float32) + 0.5).tobytes()
    with pytest.raises(ExportError, match=rf"{graph}.*input.*expected at most"):
        verify(graph_specs(model), {"float32": {**graphs, graph: damaged}}, 4)


def test_half_precision_that_overflows_fails_its_gate(checkpoint: Path, graphs: dict[str, onnx.ModelProto]) -> None:
    model, _, _ = load_weights(checkpoint)
    twin = half(model)
    with torch.no_grad():
        twin.context_head.out.weight.fill_(60000)
    twins = to_onnx(twin, 16, ("encoder", "decoder"))
    with pytest.raises(ExportError, match="encoder in float16"):
        verify(graph_specs(model), {"float32": graphs, "float16": twins}, 4)


def test_onnx_equals_torch_for_the_whole_chain(checkpoint: Path, graphs: dict[str, onnx.ModelProto]) -> None:
    model, _, _ = load_weights(checkpoint)
    photos = hard_photos(32)
    torch_chain, onnx_chain = Chain.of_torch(graph_specs(model)), Chain.of_onnx(graphs, "float32")
    encoded, mixture = onnx_chain.encode(photos)
    z = [latents(m, 5) for m in mixture]
    for a, b in zip(onnx_chain.decode(encoded, z), torch_chain.decode(torch_chain.encode(photos)[0], z), strict=True):
        assert a.shape == (5, 32, 32, 3)
        assert np.abs(a.astype(int) - b.astype(int)).max() <= 1
