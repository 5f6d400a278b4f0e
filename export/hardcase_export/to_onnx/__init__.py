# SPDX-License-Identifier: Apache-2.0
"""ONNX export: f0 converted from scikit-learn, and parts of a program as graphs with exactly its scores."""
