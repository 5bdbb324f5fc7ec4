"""What ONNX files may contain, and what INT8 removes."""

import numpy as np
import onnx
import onnxruntime
import pytest

from export.onnx_files import check, without_identity_poolings
from picme_sdk.errors import ExportError


def test_random_operators_are_refused() -> None:
    node = onnx.helper.make_node("RandomNormal", [], ["y"], shape=[1])
    value = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "g", [], [value]), opset_imports=[onnx.helper.make_opsetid("", 20)]
    )
    with pytest.raises(ExportError, match="RandomNormal"):
        check(model, "decoder")


def test_int8_goes_without_poolings_over_one_pixel_and_keeps_all_others() -> None:
    def pooling(source: str, target: str, side: int, stride: int) -> onnx.NodeProto:
        return onnx.helper.make_node("MaxPool", [source], [target], kernel_shape=[side] * 2, strides=[stride] * 2)

    nodes = [
        pooling("x", "a", 1, 1),
        pooling("a", "b", 1, 1),
        onnx.helper.make_node("Relu", ["b"], ["c"]),
        pooling("c", "d", 2, 2),
        pooling("d", "e", 1, 2),  # picks every other pixel
        pooling("e", "y", 1, 1),  # gives the output its name
    ]
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 2, s, s]) for name, s in (("x", 8), ("y", 2))]  # fmt: skip
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
    bare = without_identity_poolings(model)
    assert [(n.op_type, list(n.input), list(n.output)) for n in bare.graph.node] == [
        ("Relu", ["x"], ["c"]), ("MaxPool", ["c"], ["d"]), ("MaxPool", ["d"], ["e"]), ("MaxPool", ["e"], ["y"]),
    ]  # fmt: skip
    assert len(model.graph.node) == 6, "the original is not touched"
    x = np.random.default_rng(0).standard_normal((1, 2, 8, 8), np.float32)
    before, after = (onnxruntime.InferenceSession(m.SerializeToString()).run(None, {"x": x})[0] for m in (model, bare))
    assert np.array_equal(before, after)
