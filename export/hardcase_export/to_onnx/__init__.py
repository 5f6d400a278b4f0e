"""ONNX: parts of a policy, and f0."""
