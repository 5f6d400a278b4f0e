# SPDX-License-Identifier: Apache-2.0
"""Back ends of f0: servers that answer behind a protocol of their own, such as KServe's or that of large models."""
