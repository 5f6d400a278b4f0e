# SPDX-License-Identifier: Apache-2.0
"""CMSIS-NN's functions over a network's layers on an emulated Cortex-M4F, from a checkout that the user gives."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks import mcu
from hardcase_edge.program.definition import AVERAGE, DEPTHWISE, Layer, Network
from hardcase_export.to_c.boards import BOARDS

HEADERS = tuple(
    f"Include/{name}.h"
    for name in (
        "arm_nnfunctions", "arm_nnsupportfunctions", "arm_nn_types", "arm_nn_math_types", "Internal/arm_nn_compiler"
    )
)  # fmt: skip
SOURCES = tuple(
    f"Source/{folder}Functions/arm_{name}.c"
    for folder, names in {
        "Convolution": ("convolve_s8", "convolve_1x1_s8_fast", "depthwise_conv_3x3_s8", "nn_mat_mult_kernel_s8_s16",
                        "nn_mat_mult_kernel_row_offset_s8_s16"),
        "NNSupport": ("nn_mat_mult_nt_t_s8", "s8_to_s16_unordered_with_offset"),
        "Pooling": ("avgpool_s8", "avgpool_get_buffer_sizes_s8"),
    }.items()
    for name in names
)  # fmt: skip
ROUNDINGS = {"twice, its default": (), "once": ("-DCMSIS_NN_USE_SINGLE_ROUNDING",)}
BOARD = BOARDS[2]
MAIN = """\
#include <stdio.h>
#include "arm_nnfunctions.h"
#define SYSTICK ((volatile uint32_t *)0xE000E010u)
#define DIMS(n, h, w, c) (&(cmsis_nn_dims){n, h, w, c})
#define QUANT(m, s) (&(cmsis_nn_per_channel_quant_params){(int32_t *)m, (int32_t *)s})
static int8_t tensors[2][%(most)d];
static int32_t scratch[%(most)d];
static cmsis_nn_context context = {scratch, sizeof scratch};
%(numbers)s
static const int8_t rows[][%(n_in)d] = {%(rows)s};
static int failed;

static void infer(const int8_t *x)
{
    int8_t *y = tensors[0];
%(calls)s
}

int main(void)
{
    uint32_t began, ended = 0;
    SYSTICK[1] = 0xFFFFFF;
    SYSTICK[2] = 0;
    SYSTICK[0] = 5;
    began = SYSTICK[2];
    for (int row = 0; row < %(n)d; row++) {
        infer(rows[row]);
        if (row == %(counted)d - 1) ended = SYSTICK[2];
        for (int k = 0; k < %(n_out)d; k++) printf("%%d ", tensors[%(last)d][k]);
    }
    printf("%%ld %%d\\n", (long)(began - ended) & 0xFFFFFF, failed);
    return 0;
}
"""


def versions(folder: Path) -> dict[str, str]:
    """The revision and the date that each source of a checkout names; ends with one line if it lacks a file."""
    for name in HEADERS + SOURCES:
        if not (folder / name).is_file():
            raise SystemExit(f"--cmsis-nn: {folder} has no {name}; give a checkout of ARM-software/CMSIS-NN")
    texts = {Path(name).name: (folder / name).read_text(encoding="utf-8", errors="replace") for name in SOURCES}
    return {name: " of ".join(re.findall(r"\$(?:Revision|Date):\s+(.*\S)", text)[::-1]) for name, text in texts.items()}


def numbers_of(layers: tuple[Layer, ...]) -> Iterator[str]:
    """The constants of each layer, in C."""
    for k, layer in enumerate(layers):
        shifts = tuple(31 - shift for shift in layer.shifts)
        named = {"w": layer.weights, "b": layer.bias, "m": layer.multipliers, "s": shifts}
        for name, values in named.items():
            if values:
                kind = "int8_t" if name == "w" else "int32_t"
                yield f"static const {kind} {name}{k}[] = {{{', '.join(map(str, values))}}};"


def calls_of(network: Network) -> Iterator[str]:
    """The call of each layer, in C: what CMSIS-NN's wrappers choose for these windows."""
    (height, width, channels), zero = network.shape, network.zero_point
    for k, layer in enumerate(network.layers):
        (h, w), (oh, ow, oc) = layer.window, layer.shape
        if layer.kind != AVERAGE and (h, w) not in ((1, 1), (3, 3)):
            raise ValueError(f"a window of {h} x {w}")
        is_dense = (h, w) == (1, 1) and len(layer.weights or ()) > channels * oc
        if is_dense:
            height, width, channels = 1, 1, height * width * channels
        stride, padding = (f"{{{pair[1]}, {pair[0]}}}" for pair in (layer.stride, layer.padding))
        clamp, after = f"{{{layer.low}, {layer.high}}}", f"DIMS(1, {oh}, {ow}, {oc})"
        before = f"DIMS(1, {height}, {width}, {channels})"
        offsets, own = f"{-zero}, {layer.zero_point}", f"w{k}, DIMS(1, 1, 1, {oc}), b{k}"
        if layer.kind == AVERAGE:
            head = f"avgpool_s8(&context, &(cmsis_nn_pool_params){{{stride}, {padding}, {clamp}}}, {before}, x, "
            tail = f"DIMS(1, {h}, {w}, 1), "
        else:
            is_apart = layer.kind == DEPTHWISE
            kind, more, n = ("dw_conv", "1, ", 1) if is_apart else ("conv", "", oc)
            name = (
                "depthwise_conv_3x3_s8" if is_apart else "convolve_1x1_s8_fast" if (h, w) == (1, 1) else "convolve_s8"
            )
            params = f"&(cmsis_nn_{kind}_params){{{offsets}, {more}{stride}, {padding}, {{1, 1}}, {clamp}}}"
            head = f"{name}(&context, {params}, QUANT(m{k}, s{k}), {before}, x, "
            tail = f"DIMS({n}, {h}, {w}, {oc if is_apart else channels}), {own}, " + "NULL, " * (name == "convolve_s8")
        yield f"    failed |= arm_{head}{tail}{after}, y);"
        yield f"    x = y, y = tensors[{(k + 1) % 2}];"
        (height, width, channels), zero = layer.shape, layer.zero_point


def infer(folder: Path, network: Network, codes: np.ndarray, counted: int, *flags: str) -> tuple[float, np.ndarray]:
    """Instructions of an inference, a mean over the first ``counted`` inputs, and the outputs of all, (n, outputs)."""
    layers = network.layers
    most = max(np.prod(size) for size in (network.shape, *(layer.shape for layer in layers)))
    n_out = int(np.prod(layers[-1].shape))
    text = MAIN % {
        "most": most, "numbers": "\n".join(numbers_of(layers)), "calls": "\n".join(calls_of(network)),
        "n_in": codes.shape[1], "rows": ",\n".join("{" + ",".join(map(str, row)) + "}" for row in codes.tolist()),
        "n": len(codes), "counted": counted, "n_out": n_out, "last": (len(layers) - 1) % 2,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as place:
        main = Path(place) / "main.c"
        main.write_text(text, encoding="ascii")
        sources = [main, *(folder / name for name in SOURCES)]
        try:
            said = mcu.emulated(BOARD, sources, f"-I{folder / 'Include'}", *flags)
        except subprocess.CalledProcessError as error:
            first = next((line for line in str(error.stderr).splitlines() if "error" in line), str(error))
            raise SystemExit(f"--cmsis-nn: {folder} does not compile or run: {first}") from None
    *outputs, ticks, failed = map(int, said)
    assert not failed, "CMSIS-NN refuses a layer"
    return ticks * 1e9 / mcu.TICKS[BOARD.machine] / counted, np.array(outputs).reshape(len(codes), n_out)
