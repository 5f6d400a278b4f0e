# SPDX-License-Identifier: Apache-2.0
"""The settings of a training: what hardcase.toml says, each key stated once."""
