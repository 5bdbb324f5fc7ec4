"""Torch modules -> ONNX graphs in float32, float16 and int8, each in one self-contained file."""

from __future__ import annotations

import copy
import logging
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import torch

from export.graphs import GraphSpec, graph_specs
from picme_sdk.contract import GRAPHS
from picme_sdk.errors import ExportError
from training.model import Picme

OPSET = 20
RANDOM = {
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Bernoulli",
    "Multinomial",
    "Dropout",
}


def _convert(spec: GraphSpec, max_batch: int) -> onnx.ModelProto:
    example = spec.example()
    arguments: tuple[object, ...] = example
    shapes = None
    if spec.name == "decoder":
        arguments = (example[0], list(example[1:]))
        shapes = {"z": {0: torch.export.Dim("n", min=1, max=max_batch)}, "skips": [None] * (len(example) - 1)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter warns about its own deprecations
        program = torch.onnx.export(
            spec.module,
            arguments,
            dynamo=True,
            opset_version=OPSET,
            external_data=False,
            verbose=False,
            input_names=[tensor.name for tensor in spec.inputs],
            output_names=[tensor.name for tensor in spec.outputs],
            dynamic_shapes=shapes,
        )
    if program is None:
        raise ExportError(f"{spec.name}: no graph", "an ONNX graph from torch.onnx.export", "report this")
    return program.model_proto


def _name_batch(model: onnx.ModelProto) -> None:
    """The exporter generates a name for the number of results; the contract calls it n."""
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for size in value.type.tensor_type.shape.dim:
            if size.HasField("dim_param"):
                size.dim_param = "n"


def _strip(model: onnx.ModelProto) -> None:
    """Remove what the exporter writes about this machine and its run: source lines, stack traces, intermediate shapes."""
    del model.graph.value_info[:]
    del model.metadata_props[:]
    model.graph.doc_string = ""
    for node in model.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    for value in (*model.graph.input, *model.graph.output):
        del value.metadata_props[:]
    for tensor in model.graph.initializer:
        tensor.doc_string = ""
        del tensor.metadata_props[:]


def check(model: onnx.ModelProto, name: str) -> None:
    """What export/graphs.py promises of every graph."""
    onnx.checker.check_model(model, full_check=True)
    operators = {node.op_type for node in model.graph.node}
    if operators & RANDOM:
        raise ExportError(
            f"{name}: random operators {sorted(operators & RANDOM)}", "none", "the host must draw the noise"
        )
    if any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in model.graph.initializer):
        raise ExportError(f"{name}: external data", "one self-contained file", "report this")


def to_onnx(model: Picme, max_batch: int, names: tuple[str, ...] = GRAPHS) -> dict[str, onnx.ModelProto]:
    """The named graphs of a model in its own precision."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    graphs = {}
    for spec in (spec for spec in graph_specs(model) if spec.name in names):
        proto = _convert(spec, max_batch)
        _name_batch(proto)
        _strip(proto)
        check(proto, spec.name)
        graphs[spec.name] = proto
    return graphs


def half(model: Picme) -> Picme:
    """An FP16 copy: the precision is in the graph, since TensorRT 11 has no FP16 flag."""
    return copy.deepcopy(model).half().eval()


class _Feeds:
    """The interface of ONNX Runtime's calibration data reader."""

    def __init__(self, feeds: list[dict[str, np.ndarray]]) -> None:
        self.rest: Iterator[dict[str, np.ndarray]] = iter(feeds)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.rest, None)


def _is_identity_pooling(node: onnx.NodeProto) -> bool:
    """Whether a node is a max-pooling over single pixels, without stride or padding."""
    if node.op_type != "MaxPool" or len(node.output) != 1:
        return False
    attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    strides, pads = attributes.get("strides", [1]), attributes.get("pads", [0])
    return set(attributes["kernel_shape"]) == {1} and set(strides) == {1} and set(pads) == {0}


def without_identity_poolings(graph: onnx.ModelProto) -> onnx.ModelProto:
    """A copy without the poolings over one pixel, which speed up float32 convolutions only (see DecoderGraph). Other poolings stay."""
    copied: onnx.ModelProto = onnx.ModelProto.FromString(graph.SerializeToString())
    outputs = {value.name for value in copied.graph.output}
    removed = [n for n in copied.graph.node if _is_identity_pooling(n) and n.output[0] not in outputs]
    source: dict[str, str] = {}
    for node in removed:  # in the order in which they run, so that chains resolve to their beginning
        source[node.output[0]] = source.get(node.input[0], node.input[0])
        copied.graph.node.remove(node)
    for node in copied.graph.node:
        node.input[:] = [source.get(name, name) for name in node.input]
    return copied


def to_int8(graph: onnx.ModelProto, feeds: list[dict[str, np.ndarray]]) -> onnx.ModelProto:
    """Static QDQ quantisation with weights per channel. Weights have seven bits, because AVX2 saturates when it adds eight-bit products."""
    from onnxruntime import quantization as q

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source, prepared, target = (Path(folder) / name for name in ("float.onnx", "prepared.onnx", "int8.onnx"))
        onnx.save(without_identity_poolings(graph), source)
        logging.getLogger().addFilter(_quiet)
        try:
            q.shape_inference.quant_pre_process(source, prepared, skip_symbolic_shape=True)
            q.quantize_static(
                prepared,
                target,
                _Feeds(feeds),
                quant_format=q.QuantFormat.QDQ,
                op_types_to_quantize=["Conv", "LeakyRelu", "Relu", "Add", "Resize", "AveragePool"],
                per_channel=True,
                reduce_range=True,
                activation_type=q.QuantType.QUInt8,
                weight_type=q.QuantType.QInt8,
                calibrate_method=q.CalibrationMethod.MinMax,
                extra_options={"ActivationSymmetric": False},
            )
        finally:
            logging.getLogger().removeFilter(_quiet)
        quantised = onnx.load(target)
    used = {node.domain for node in quantised.graph.node}  # the quantizer imports more than it uses
    kept = [opset for opset in quantised.opset_import if opset.domain in used]
    del quantised.opset_import[:]
    quantised.opset_import.extend(kept)
    _strip(quantised)
    return quantised


def _quiet(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR
