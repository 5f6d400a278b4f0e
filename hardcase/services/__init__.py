# SPDX-License-Identifier: Apache-2.0
"""The commands of ``hardcase cloud`` that stand beside brokers and workers, one module each."""
