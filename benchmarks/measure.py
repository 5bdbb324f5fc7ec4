"""How we measure: interleaved rounds, percentiles, and the machine's own limit in the same run.

The machine may be noisy. Every method runs once in each round, so all of them see the same noise; compare medians, trust ratios.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper


def rounds(methods: dict[str, Callable[[], object]], count: int, warm_up: int = 2) -> dict[str, np.ndarray]:
    """Milliseconds of each method in each round."""
    times: dict[str, list[float]] = {name: [] for name in methods}
    for i in range(warm_up + count):
        for name, run in methods.items():
            start = time.perf_counter()
            run()
            if i >= warm_up:
                times[name].append((time.perf_counter() - start) * 1000)
    return {name: np.array(values) for name, values in times.items()}


def percentiles(times: np.ndarray) -> dict[str, float]:
    return {f"p{q}": round(float(np.percentile(times, q)), 3) for q in (50, 95, 99)}


def session(model: onnx.ModelProto | bytes | str, threads: int) -> onnxruntime.InferenceSession:
    """A session as the SDK opens it: threads of one session must not spin while another one works."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    options.add_session_config_entry("session.force_spinning_stop", "1")
    data = model.SerializeToString() if isinstance(model, onnx.ModelProto) else model
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def matrix_product(threads: int, side: int = 1536) -> tuple[Callable[[], object], float]:
    """A float32 matrix product in ONNX Runtime and its GFLOP: what this machine can do at best."""
    weight = numpy_helper.from_array(np.ones((side, side), np.float32), "b")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [side, side]) for name in ("a", "c")]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["c"])], "product", values[:1], values[1:], [weight]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    product, feed = session(model, threads), {"a": np.ones((side, side), np.float32)}
    return lambda: product.run(None, feed), 2 * side**3 / 1e9


def with_shapes(model: onnx.ModelProto, batch: int) -> onnx.ModelProto:
    """A copy whose number of results is `batch` and whose tensors all have shapes."""
    fixed = onnx.ModelProto.FromString(model.SerializeToString())
    for value in fixed.graph.input:
        for size in value.type.tensor_type.shape.dim:
            if size.HasField("dim_param"):
                size.dim_value = batch
    for value in fixed.graph.output:
        value.type.tensor_type.ClearField("shape")
    return onnx.shape_inference.infer_shapes(fixed, data_prop=True)


def gflop(model: onnx.ModelProto, batch: int = 1) -> float:
    """2 x multiply-add of the convolutions and matrix products of a graph."""
    graph = with_shapes(model, batch).graph
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in (*graph.value_info, *graph.output)}
    weights = {t.name: list(t.dims) for t in graph.initializer}
    total = 0
    for node in graph.node:
        if node.op_type in ("Conv", "Gemm"):  # a Gemm's weight is [outputs, inputs], as torch writes it
            total += 2 * int(np.prod(shapes[node.output[0]])) * int(np.prod(weights[node.input[1]][1:]))
    return total / 1e9
