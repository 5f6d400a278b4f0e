# SPDX-License-Identifier: Apache-2.0
"""The Python interface: train, export, load and evaluate, by the functions that the command line calls."""
