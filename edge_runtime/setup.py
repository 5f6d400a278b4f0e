# SPDX-License-Identifier: Apache-2.0
"""Builds the kernel where there is a compiler; without one the package is whole, and decides in pure Python.

HARDCASE_PURE=1 leaves it out on purpose: `make wheels` makes a wheel for any machine that way.
"""

import os
from glob import glob
from runpy import run_path

from setuptools import Extension, setup

FOLDER = "hardcase_edge/kernel"
listed = run_path(f"{FOLDER}/sources.py")
kernel = Extension(
    "hardcase_edge.kernel._kernel",
    [f"{FOLDER}/{name}" for name in listed["EXTENSION"]],
    include_dirs=[FOLDER],
    depends=glob(f"{FOLDER}/*.[ch]"),
    extra_compile_args=list(listed["FLAGS"]),
    py_limited_api=True,
    optional=True,
)
is_pure = os.environ.get("HARDCASE_PURE") == "1"

setup(
    ext_modules=[] if is_pure else [kernel],
    options={} if is_pure else {"bdist_wheel": {"py_limited_api": "cp311"}},
)
