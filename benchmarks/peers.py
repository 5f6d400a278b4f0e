# SPDX-License-Identifier: Apache-2.0
"""Whoever else puts boosted trees on a device, each as a C function of one row behind one cffi module.

A module offers ``predict(row)``, ``labels(rows, n, out)`` and ``measure(rows, n, repeats, out)``, which times whole
passes over the rows in C, in nanoseconds of the thread's own time a row. All are compiled alike; rows lie as each peer
wants them.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cffi
import numpy as np

from benchmarks.boosted import Flat
from benchmarks.pages import ROOT
from hardcase_edge.kernel.image import make_image
from hardcase_edge.program.definition import Program

KERNEL = ROOT / "edge_runtime" / "hardcase_edge" / "kernel"
FLAGS = ["-std=gnu99", "-O2", "-w"]
DECLARED = """
int start(void);
int predict(const void *row);
void labels(const void *rows, size_t n, signed char *out);
void measure(const void *rows, size_t n, int repeats, double *out);
"""
TIMING = """
#include <time.h>
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return 1e9 * t.tv_sec + t.tv_nsec;
}
void labels(const void *rows, size_t n, signed char *out)
{
    for (size_t k = 0; k < n; k++) out[k] = (signed char)predict((const char *)rows + k * ROW_BYTES);
}
void measure(const void *rows, size_t n, int repeats, double *out)
{
    static volatile int sink;
    for (int r = 0; r < repeats; r++) {
        double began = now();
        for (size_t k = 0; k < n; k++) sink += predict((const char *)rows + k * ROW_BYTES);
        out[r] = (now() - began) / n;
    }
}
"""


@dataclass
class Peer:
    """A compiled peer. ``dtype``: of its rows; ``n_bytes``: of its model, be it data or code."""

    name: str
    module: Any
    dtype: str
    n_bytes: int

    def measure(self, rows: np.ndarray, repeats: int) -> list[float]:
        """Nanoseconds a row of each pass."""
        data = np.ascontiguousarray(rows, self.dtype)
        out = self.module.ffi.new("double[]", repeats)
        self.module.lib.measure(self._at(data), len(data), repeats, out)
        return list(out)

    def labels(self, rows: np.ndarray) -> np.ndarray:
        """A class per row."""
        data = np.ascontiguousarray(rows, self.dtype)
        out = np.zeros(len(data), np.int8)
        self.module.lib.labels(self._at(data), len(data), self.module.ffi.from_buffer("signed char *", out))
        return out

    def call(self, row: np.ndarray) -> Any:
        """A function without arguments: one prediction from Python, of a row that lies ready."""
        data, predict = np.ascontiguousarray(row, self.dtype), self.module.lib.predict
        pointer = self._at(data)
        return lambda held=data: predict(pointer)

    def _at(self, data: np.ndarray) -> Any:
        return self.module.ffi.from_buffer("void *", data)


def build(folder: Path, name: str, row_bytes: int, source: str, **settings: Any) -> Any:
    """Compile a peer's source, which defines ``start`` and ``predict``."""
    maker = cffi.FFI()
    maker.cdef(DECLARED)
    maker.set_source(name, f"#define ROW_BYTES {row_bytes}\n{source}\n{TIMING}", extra_compile_args=FLAGS, **settings)
    spec = importlib.util.spec_from_file_location(name, maker.compile(tmpdir=str(folder)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[name] = module
    module.lib.start()
    return module


def hardcase(folder: Path, case: str, program: Program) -> Peer:
    """The kernel: a whole decision from raw readings, session and all."""
    image = make_image(program)
    words = ",".join(map(str, np.frombuffer(image, np.uint64)))
    source = f"""
#include "hardcase.h"
static const uint64_t model[] = {{{words}}};
static HC_SESSION(memory, {1 << 12});
int start(void) {{ return hc_session_bytes(model) <= sizeof memory; }}
int predict(const void *row)
{{
    hc_session *s = &memory.session;
    hc_start(s, model, HC_NO_BUDGET, 1, HC_NO_CLOUD);
    hc_next(s);
    hc_feed(s, 0, row);
    hc_next(s);
    return (int)s->result;
}}"""
    place = {"sources": [str(KERNEL / "hardcase.c")], "include_dirs": [str(KERNEL)]}
    module = build(folder, f"hardcase_{case}", 4 * 64, source, **place)
    return Peer("hardcase", module, "i4", len(image))


def emlearn_mended(folder: Path, case: str, trees: list[Flat]) -> Peer:
    """emlearn's loadable trees, with ``x < floor(threshold) + 1`` where it would emit ``x < (int)threshold``."""
    import emlearn

    nodes, leaves, roots = [], [], []
    for t in trees:
        roots.append(len(nodes))
        for i, (f, x, pair) in enumerate(zip(t.feature, t.threshold, t.children, strict=True)):
            left, right = (c - i if c >= 0 else c - len(leaves) for c in pair)
            nodes.append(f"{{{f}, {int(np.floor(x)) + 1}, {left}, {right}}}")
        leaves += t.leaves
    source = f"""
#include "eml_trees.h"
static EmlTreesNode nodes[] = {{{",".join(nodes)}}};
static int32_t roots[] = {{{",".join(map(str, roots))}}};
static float leaves[] = {{{",".join(f"{v!r}f" for v in leaves)}}};
static EmlTrees model = {{{len(nodes)}, nodes, {len(roots)}, roots, {len(leaves)}, (uint8_t *)leaves, 32, 64, 1}};
int start(void) {{ return 1; }}
int predict(const void *row) {{ return eml_trees_regress1(&model, row, 64) > 0; }}"""
    module = build(folder, f"emlearn_{case}", 2 * 64, source, include_dirs=[str(Path(emlearn.__file__).parent)])
    return Peer("emlearn, thresholds mended", module, "i2", 8 * len(nodes) + 4 * len(roots) + 4 * len(leaves))


def m2cgen_c(folder: Path, case: str, model: Any) -> Peer:
    """m2cgen's C: nested conditions over doubles."""
    import m2cgen

    code = m2cgen.export_to_c(model)
    source = f"""
{code}
int start(void) {{ return 1; }}
int predict(const void *row)
{{
    double out[2];
    score((double *)row, out);
    return out[1] > 0.5;
}}"""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 10_000))
    module = build(folder, f"m2cgen_{case}", 8 * 64, source)
    return Peer("m2cgen", module, "f8", _text_bytes(Path(module.__file__), "score"))


def _text_bytes(path: Path, symbol: str) -> int:
    """Bytes of a function's code: what a model is that has no data."""
    import subprocess

    listed = subprocess.run(["nm", "-S", str(path)], check=True, capture_output=True, text=True).stdout
    return next(int(w[1], 16) for w in map(str.split, listed.splitlines()) if len(w) == 4 and w[3] == symbol)


def lightgbm_single_row(folder: Path, case: str, model: Any) -> Peer:
    """LightGBM's own library, by the call it has for single rows."""
    import lightgbm

    (library,) = Path(lightgbm.__file__).parent.rglob("lib_lightgbm.so")
    path = folder / f"{case}.txt"
    model.booster_.save_model(str(path))
    source = f"""
#include <stdint.h>
typedef void *handle;
int LGBM_BoosterCreateFromModelfile(const char *, int *, handle *);
int LGBM_BoosterPredictForMatSingleRowFastInit(handle, int, int, int, int, int32_t, const char *, handle *);
int LGBM_BoosterPredictForMatSingleRowFast(handle, const void *, int64_t *, double *);
static handle booster, fast;
int start(void)
{{
    int n;
    return LGBM_BoosterCreateFromModelfile("{path}", &n, &booster) ||
           LGBM_BoosterPredictForMatSingleRowFastInit(booster, 1, 0, 0, 1, 64, "num_threads=1", &fast);
}}
int predict(const void *row)
{{
    int64_t n;
    double out = 0;
    LGBM_BoosterPredictForMatSingleRowFast(fast, row, &n, &out);
    return out > 0;
}}"""
    module = build(
        folder, f"lightgbm_{case}", 8 * 64, source, extra_objects=[str(library)],
        runtime_library_dirs=[str(library.parent)],
    )  # fmt: skip
    return Peer("LightGBM, single row", module, "f8", path.stat().st_size)


def onnx_session(model: Any) -> tuple[Any, int]:
    """An onnxruntime session of the model on one thread, and the file's bytes."""
    import onnxmltools
    import onnxruntime
    from onnxmltools.convert.common.data_types import FloatTensorType

    made = onnxmltools.convert_lightgbm(
        model, initial_types=[("x", FloatTensorType([None, 64]))], zipmap=False, target_opset=15
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    data = made.SerializeToString()
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]), len(data)
