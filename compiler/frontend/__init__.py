"""ONNX models -> Graph: the only place that knows ONNX."""
