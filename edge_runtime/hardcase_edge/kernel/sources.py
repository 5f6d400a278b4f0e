# SPDX-License-Identifier: Apache-2.0
"""The C files of the kernel: those that a firmware compiles, and those of the extension for Python.

``setup.py`` runs this file by itself, before the package is installed: it imports nothing of the package.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent

# hardcase.c includes the others: a compiler is given this one file.
FIRMWARE = (
    "hardcase.c",
    "hardcase.h",
    "hc_portable.h",
    "hc_layout.h",
    "hc_image.h",
    "hc_costs.h",
    "hc_readings.h",
    "hc_trees.h",
    "hc_networks.h",
    "hc_scorers.h",
    "hc_nodes.h",
    "hc_check.h",
    "hc_check_readings.h",
    "hc_check_scorers.h",
    "hc_check_nodes.h",
)
CONFIG = "hardcase_config.h"  # a firmware has one of its own
SERVO = ("hardcase_servo.c", "hardcase_servo.h")

# The units of hardcase_edge.kernel._kernel.
EXTENSION = (
    "parts.c",  # includes hardcase.c
    "chain.c",
    "py_module.c",
    "py_image.c",
    "py_session.c",
    "py_options.c",
    "py_records.c",
    "py_readings.c",
    "py_chain.c",
)
FLAGS = ("-std=c99", "-O2", "-fvisibility=hidden", "-DPy_LIMITED_API=0x030B0000")
