# SPDX-License-Identifier: Apache-2.0
"""Parts of the demonstration: its processes and its report."""
