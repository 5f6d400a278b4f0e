# SPDX-License-Identifier: Apache-2.0
"""Roll-outs: a bundle for a group of devices step by step, stopped when devices fail or quality is not what it was."""
