from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from picme_sdk.bundle.onnx_check import check_self_contained
from picme_sdk.errors import BadBundle


def model(*nodes: onnx.NodeProto, initializer: list[TensorProto] | None = None, domain: str = "") -> onnx.ModelProto:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    graph = helper.make_graph(
        nodes or [helper.make_node("Identity", ["x"], ["y"])], "g", [value], [out], initializer or []
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(domain, 20)])


def external() -> TensorProto:
    tensor = numpy_helper.from_array(np.zeros(4, np.float32), "w")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.ClearField("raw_data")
    tensor.external_data.add(key="location", value="/etc/passwd")
    return tensor


def in_subgraph(tensor: TensorProto) -> onnx.NodeProto:
    inner = helper.make_graph(
        [helper.make_node("Constant", [], ["c"], value=tensor)],
        "inner",
        [],
        [helper.make_tensor_value_info("c", TensorProto.FLOAT, [4])],
    )
    return helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner)


def test_exported_graphs_pass(bundle_folder: Path) -> None:
    for path in bundle_folder.glob("*.onnx"):
        check_self_contained(path.read_bytes(), path.name)


BAD = {
    "external initializer": model(initializer=[external()]),
    "external constant": model(helper.make_node("Constant", [], ["y"], value=external())),
    "external tensor in a subgraph": model(in_subgraph(external())),
    "custom operator": model(helper.make_node("Run", ["x"], ["y"], domain="evil.ops")),
    "custom operator set": model(domain="evil.ops"),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_models_that_reach_outside_are_refused(bad: onnx.ModelProto) -> None:
    with pytest.raises(BadBundle, match=r"m\.onnx"):
        check_self_contained(bad.SerializeToString(), "m.onnx")


def test_local_functions_are_refused() -> None:
    made = model()
    made.functions.append(
        helper.make_function(
            "f", "F", ["a"], ["b"], [helper.make_node("Identity", ["a"], ["b"])], [helper.make_opsetid("", 20)]
        )
    )
    with pytest.raises(BadBundle, match="local functions"):
        check_self_contained(made.SerializeToString(), "m.onnx")


def test_bytes_that_are_no_model_are_refused() -> None:
    good = model().SerializeToString()
    for data in (b"", b"hello", good[: len(good) // 2], b"\xff" * 50):
        with pytest.raises(BadBundle, match=r"m\.onnx"):
            check_self_contained(data, "m.onnx")


def test_the_walk_agrees_with_onnx_on_random_damage() -> None:
    """Whatever bytes come, the outcome is a verdict, never another exception."""
    good = bytearray(model(initializer=[numpy_helper.from_array(np.ones(50, np.float32), "w")]).SerializeToString())
    random = np.random.default_rng(0)
    for _ in range(500):
        data = good.copy()
        for _ in range(random.integers(1, 4)):
            data[random.integers(len(data))] = random.integers(256)
        try:
            check_self_contained(bytes(data), "m.onnx")
        except BadBundle:
            continue
