# SPDX-License-Identifier: Apache-2.0
"""An int8 network as a scorer of a program: its integers and its time beside LiteRT's, its instructions on a Cortex-M.

    python -m benchmarks run int8 [--cmsis-nn FOLDER]

The network is depthwise separable, of random weights, quantised on random inputs; its TFLite file is imported as a
user's is. Integers are compared over whole networks, and over each layer alone, which then reads the same numbers.
Time is of one inference on one thread: the kernel from the last reading to the answer, LiteRT's ``invoke``, in turns.
Instructions are counted as in ``mcu.py``; with a checkout of CMSIS-NN its functions run the same network on the same
emulated core, from the input's integers to the outputs'.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from benchmarks import cmsis_nn, mcu
from benchmarks.pages import markdown
from hardcase_edge.bundle.load import load_bytes
from hardcase_edge.kernel.sources import FLAGS
from hardcase_edge.more.batch.scores import score_codes
from hardcase_export.foreign_model import import_model
from hardcase_export.sources.int8 import Int8Network, scorer_of
from hardcase_export.to_c.boards import BOARDS, COMPILER
from hardcase_export.to_c.folder import write_c
from hardcase_export.to_c.header import pack_readings, words
from hardcase_export.to_c.names import array
from hardcase_export.to_tflite.write_int8 import write_int8
from tests.helpers.export.int8_nets import conv, dense, depthwise, pool, random_network

SHAPE = (16, 16, 3)
LAYERS = [
    conv(32, 3, 2), depthwise(), conv(64), depthwise(), conv(64), depthwise(), conv(96), depthwise(), conv(128),
    pool(8, 8), dense(10),
]  # fmt: skip
KERNELS = {
    "XNNPACK, its default": OpResolverType.AUTO,
    "its own, optimised": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    "its reference": OpResolverType.BUILTIN_REF,
}
TIMED, ROUNDS, BATCH = 20, 60, 500
MOST_TIMES, MOST_CMSIS_NN = 3.0, 4.0
LEVELS = ("-O2", "-Os")
COUNTED, ON_BOARD = 4, 100  # inputs whose instructions are counted, and on which CMSIS-NN's outputs are compared
MAIN = """
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <time.h>

#include "model.h"

static const uint64_t rows[] = {
%(rows)s
};
static HC_SESSION(memory, MODEL_SESSION_BYTES);

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

int main(void)
{
    hc_session *s = &memory.session;
    double took = 0;
    for (int row = 0; row < %(n)d; row++) {
        hc_start(s, model, HC_NO_BUDGET, 1, HC_NO_CLOUD);
        hc_next(s);
        hc_feed(s, 0, rows + row * %(words)d);
        double began = now();
        hc_next(s);
        took += now() - began;
        printf("%%d ", (int)s->result);
    }
    printf("%%f\\n", took / %(n)d);
    return 0;
}
"""


def arguments(parser: Any) -> None:
    """The flags of its own."""
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--cmsis-nn", type=Path, metavar="FOLDER", help="a checkout of ARM-software/CMSIS-NN")


def ours(network: Int8Network, codes: np.ndarray) -> np.ndarray:
    """The scores of the program, (n, outputs)."""
    return np.asarray(score_codes((scorer_of(network, [0] * codes.shape[1]),), 0, codes.T.astype(np.int64)))


class LiteRT:
    """One kind of kernels of LiteRT, on one thread."""

    def __init__(self, network: Int8Network, kind: OpResolverType) -> None:
        self._run = Interpreter(model_content=write_int8(network), num_threads=1, experimental_op_resolver_type=kind)
        self._run.allocate_tensors()
        self._shape, self._zero = (1, *network.shape), network.layers[-1].grid.zero_point
        self._in, self._out = (d()[0]["index"] for d in (self._run.get_input_details, self._run.get_output_details))

    def __call__(self, codes: np.ndarray) -> np.ndarray:
        rows = []
        for row in codes:
            self._run.set_tensor(self._in, row.reshape(self._shape))
            self._run.invoke()
            rows.append(self._run.get_tensor(self._out).ravel().astype(int) - self._zero)
        return np.array(rows)

    def us(self, n: int) -> float:
        """Of one inference, over n of the same."""
        began = time.perf_counter()
        for _ in range(n):
            self._run.invoke()
        return (time.perf_counter() - began) / n * 1e6


def counted(ours_: np.ndarray, theirs: np.ndarray) -> dict[str, int]:
    """How many outputs are equal, one step off, and further."""
    off = np.abs(ours_ - theirs)
    return {"equal": int((off == 0).sum()), "one": int((off == 1).sum()), "more": int((off > 1).sum())}


def layer_by_layer(network: Int8Network, codes: np.ndarray, kind: OpResolverType) -> dict[str, int]:
    """How many outputs of each layer alone are equal, one step off, and further, summed up."""
    total = {"equal": 0, "one": 0, "more": 0}
    shape, grid = network.shape, network.grid
    for layer in network.layers:
        alone = Int8Network(shape, grid, (layer,))
        outputs = ours(alone, codes)
        for key, n in counted(outputs, LiteRT(alone, kind)(codes)).items():
            total[key] += n
        codes = (outputs + layer.grid.zero_point).astype(np.int8)
        shape, grid = layer.shape, layer.grid
    return total


def compared(network: Int8Network, codes: np.ndarray) -> list[dict[str, Any]]:
    """One row for each kind of kernels."""
    scores = np.concatenate([ours(network, codes[k : k + BATCH]) for k in range(0, len(codes), BATCH)])
    rows = []
    for name, kind in KERNELS.items():
        theirs = LiteRT(network, kind)(codes)
        labels = int((scores.argmax(axis=1) != theirs.argmax(axis=1)).sum())
        alone = layer_by_layer(network, codes[: len(codes) // 100], kind)
        rows.append({"kernels": name, **counted(scores, theirs), "labels": labels, "layers": alone})
    return rows


def timed(folder: Path, network: Int8Network, readings: list[list[float]], expected: list[int]) -> dict[str, float]:
    """The best of many rounds, in us."""
    program = load_bytes((folder / "model.hcb").read_bytes()).bundle.program
    packed = [pack_readings(program, row) for row in readings]
    source = {"rows": array(words(b"".join(packed))), "words": len(packed[0]) // 8, "n": len(packed)}
    (folder / "timed.c").write_text(MAIN % source, encoding="ascii")
    flags = [flag for flag in FLAGS if flag.startswith(("-std", "-O"))]
    subprocess.run(["gcc", *flags, "timed.c", "hardcase.c", "-lm", "-o", "timed"], cwd=folder, check=True)
    theirs = {name: LiteRT(network, kind) for name, kind in KERNELS.items()}
    best = dict.fromkeys(("kernel", *theirs), float("inf"))
    for _ in range(ROUNDS):
        *said, us = subprocess.run([folder / "timed"], capture_output=True, text=True, check=True).stdout.split()
        assert list(map(int, said)) == expected, "the kernel's answers are not Python's"
        best["kernel"] = min(best["kernel"], float(us))
        for name, run in theirs.items():
            best[name] = min(best[name], run.us(TIMED))
    return best


def beside_cmsis_nn(folder: Path, network: Int8Network, codes: np.ndarray) -> list[dict[str, Any]]:
    """One row for each way to round and level: instructions, and outputs beside ours and LiteRT's reference kernels."""
    mine, theirs = ours(network, codes), LiteRT(network, OpResolverType.BUILTIN_REF)(codes)
    scorer, zero, rows = scorer_of(network, [0] * codes.shape[1]), network.layers[-1].grid.zero_point, []
    for rounds, flags in cmsis_nn.ROUNDINGS.items():
        for level in LEVELS:
            n, outputs = cmsis_nn.infer(folder, scorer, codes, COUNTED, level, *flags)
            litert = counted(theirs, outputs - zero)["equal"]
            rows.append({"rounds": rounds, "level": level, "instructions": n, "litert": litert})
            rows[-1] |= counted(mine, outputs - zero)
    return rows


def run(args: Any) -> dict[str, Any]:
    """Compare and measure."""
    files = cmsis_nn.versions(args.cmsis_nn) if args.cmsis_nn else {}
    network = random_network(1, SHAPE, LAYERS)
    codes = np.random.default_rng(0).integers(-128, 128, (args.inputs, int(np.prod(SHAPE)))).astype(np.int8)
    found: dict[str, Any] = {
        "weights": sum(layer.weights.size for layer in network.layers if layer.weights is not None),
        "inputs": args.inputs,
        "compared": compared(network, codes),
    }
    few = codes[:TIMED]
    readings = (network.grid.scale * (few.astype(float) - network.grid.zero_point)).astype(np.float32)
    rows, expected = readings.astype(float).tolist(), ours(network, few).argmax(axis=1).tolist()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "net.tflite").write_bytes(write_int8(network))
        done = import_model(folder / "net.tflite", folder / "model.hcb", n_check=200)
        found |= {"operations": done.report.operations, "bytes": done.n_bytes}
        write_c(load_bytes((folder / "model.hcb").read_bytes()), folder)
        found["us"] = timed(folder, network, rows, expected)
        some: Any = rows[:COUNTED]
        if shutil.which(COMPILER) and shutil.which("qemu-system-arm"):
            found["instructions"] = {
                f"{board.core}, {level}": mcu.measure(folder, board, level, some, expected[:COUNTED])[0]
                for board in BOARDS[1:]
                for level in LEVELS
            }
        if files:
            found["cmsis_nn"] = {"files": files, "rows": beside_cmsis_nn(args.cmsis_nn, network, codes[:ON_BOARD])}
    return found


def page(m: dict[str, Any]) -> str:
    """The figures."""
    rows = [
        (r["kernels"], f"{r['equal']:,}", f"{r['one']:,}", f"{r['more']:,}", f"{r['labels']:,}",
         f"{r['layers']['one']:,} of {sum(r['layers'].values()):,}", f"{r['layers']['more']:,}",
         f"{m['us'][r['kernels']]:.1f}", f"{m['us']['kernel'] / m['us'][r['kernels']]:.1f}")
        for r in m["compared"]
    ]  # fmt: skip
    head = (
        "LiteRT's kernels", "outputs equal", "one step off", "more", "labels that differ", "one step off, by layer",
        "more", "LiteRT, us", "the kernel takes times",
    )  # fmt: skip
    text = (
        f"The network has {m['weights']:,} weights; it is compared on {m['inputs']:,} inputs, and layer by layer on a "
        f"hundredth of them.\nA decision takes {m['operations']:,} operations by the verifier's count, and the kernel "
        f"{m['us']['kernel']:.1f} us.\nTimes are the best of {ROUNDS} rounds.\n\n{markdown(head, rows)}\n"
    )
    if "instructions" in m:
        counts = [(name, f"{n / 1e6:.2f}") for name, n in m["instructions"].items()]
        text += f"\n{markdown(('core, level', 'million instructions'), counts)}\n"
    return text + (page_of_cmsis_nn(m) if "cmsis_nn" in m else f"\n{NOT_GIVEN}\n")


NOT_GIVEN = (
    "This run had no CMSIS-NN: `python -m benchmarks run int8 --cmsis-nn FOLDER`, a checkout of it, adds its row."
)


def times_cmsis_nn(m: dict[str, Any], row: dict[str, Any]) -> float:
    """Our instructions by those of a row."""
    return float(m["instructions"][f"{cmsis_nn.BOARD.core}, {row['level']}"] / row["instructions"])


def page_of_cmsis_nn(m: dict[str, Any]) -> str:
    """Its table, and the files that it was made of."""
    head = (
        "CMSIS-NN rounds", "level", "million instructions", "the kernel takes times", "outputs equal", "one step off",
        "more", "equal to LiteRT's reference",
    )  # fmt: skip
    rows = [
        (r["rounds"], r["level"], f"{r['instructions'] / 1e6:.2f}", f"{times_cmsis_nn(m, r):.2f}",
         *(f"{r[key]:,}" for key in ("equal", "one", "more", "litert")))
        for r in m["cmsis_nn"]["rows"]
    ]  # fmt: skip
    files = "; ".join(f"`{name}` {version}" for name, version in m["cmsis_nn"]["files"].items())
    return (
        f"\nBeside CMSIS-NN on the emulated {cmsis_nn.BOARD.core}, outputs of {ON_BOARD} inputs, instructions of "
        f"{COUNTED}:\n\n{markdown(head, rows)}\n\nIts files: {files}.\n"
    )


def problems(m: dict[str, Any]) -> list[str]:
    """What misses its goal."""
    off = [f"{r['kernels']}: a layer is more than one step off" for r in m["compared"] if r["layers"]["more"]]
    times = m["us"]["kernel"] / m["us"][next(iter(KERNELS))]
    off += [f"{times:.1f} times LiteRT's time, at most {MOST_TIMES:g}"] * (times > MOST_TIMES)
    beside = [(r, times_cmsis_nn(m, r)) for r in m.get("cmsis_nn", {}).get("rows", [])]
    return off + [
        f"{n:.1f} times CMSIS-NN's instructions at {r['level']}, less than {MOST_CMSIS_NN:g} is asked for"
        for r, n in beside
        if n >= MOST_CMSIS_NN
    ]
