# SPDX-License-Identifier: Apache-2.0
"""The export for ESPHome: an external component with one policy, and an example."""
