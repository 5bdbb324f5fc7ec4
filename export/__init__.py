"""Export of a training checkpoint: three ONNX graphs, their FP16 versions, TensorRT engines, one verified bundle."""
