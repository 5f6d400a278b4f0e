"""ONNX export: f0 converted from scikit-learn, and parts of a program as graphs with exactly its scores."""
