"""Export of a training checkpoint: three ONNX graphs, their FP16 twins, TensorRT engines, one verified bundle."""
