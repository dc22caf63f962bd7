"""ONNX's own cases: what of the standard compiles and computes what it says, by target."""
