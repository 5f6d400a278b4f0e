# SPDX-License-Identifier: Apache-2.0
"""Builds the kernel where there is a compiler; without one the package is whole, and decides in pure Python.

HARDCASE_PURE=1 leaves it out on purpose: `make wheels` makes a wheel for any machine that way.
"""

import os

from setuptools import Extension, setup

FOLDER = "hardcase_edge/kernel"
kernel = Extension(
    "hardcase_edge.kernel._kernel",
    [f"{FOLDER}/{name}.c" for name in ("module", "parts", "chain", "chain_module", "items_module")],
    include_dirs=[FOLDER],
    depends=[
        f"{FOLDER}/{name}"
        for name in (
            "hardcase.c",
            "hardcase.h",
            "hardcase_config.h",
            "parts.h",
            "chain.h",
            "chain_module.h",
            "module.h",
        )
    ]
    + [f"{FOLDER}/items_module.h"],
    define_macros=[("Py_LIMITED_API", "0x030B0000")],
    extra_compile_args=["-std=c99", "-O2"],
    py_limited_api=True,
    optional=True,
)
is_pure = os.environ.get("HARDCASE_PURE") == "1"

setup(
    ext_modules=[] if is_pure else [kernel],
    options={} if is_pure else {"bdist_wheel": {"py_limited_api": "cp311"}},
)
