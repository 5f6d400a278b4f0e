# SPDX-License-Identifier: Apache-2.0
"""f0 as a file: one that training has fitted, or a user's own, as the ONNX file that a worker answers with."""
