# SPDX-License-Identifier: Apache-2.0
"""Train from a configuration: sweeps, f0, the user's own model, and the build folder with its reports."""
