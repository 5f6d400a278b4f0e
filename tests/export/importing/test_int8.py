# SPDX-License-Identifier: Apache-2.0
"""Int8 networks of TFLite files become scorers that are proved, with LiteRT's integers, or one step beside them."""

from __future__ import annotations

import random
import re
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardcase.cli import main
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.errors import HardcaseError, InputError
from hardcase_edge.kernel.machine import KERNEL, open_machine
from hardcase_edge.more.batch.codes import affine_codes
from hardcase_edge.more.batch.scores import score_codes
from hardcase_edge.program.definition import DEPTHWISE, Network
from hardcase_edge.verifier.verify import verify
from hardcase_export.foreign_model import import_model, import_parts
from hardcase_export.importing.parts import column_of
from hardcase_export.importing.program import gated
from hardcase_export.integers.decide import decide
from hardcase_export.scorers.replay import tflite_runner
from hardcase_export.sources.int8 import Grid, Int8Layer, Int8Network, mean_layer, scorer_of
from hardcase_export.to_tflite.from_int8 import read_int8
from hardcase_export.to_tflite.graph import TfliteGraph
from hardcase_export.to_tflite.own_model import MAX_MODEL_BYTES
from hardcase_export.to_tflite.write_int8 import litert, write_int8
from tests.helpers.export.int8_nets import conv, dense, depthwise, pool, random_network

ROOT = Path(__file__).resolve().parents[3]
N = 100
SEPARABLE = [conv(8, 3, 2), depthwise(3), conv(12), depthwise(3, 2, is_same=False), conv(8), pool(2, 2), dense(4)]
CASES = {
    "dense": ((1, 1, 20), [dense(16), dense(5)]),
    "separable": ((12, 10, 2), SEPARABLE),
    "largest of a line": ((1, 30, 1), [depthwise(1), pool(1, 2, "MAX"), conv(6), dense(3)]),
}
SMALL = random_network(5, (6, 6, 1), [conv(4, 3, 2), depthwise(), dense(3)])


def inputs(network: Int8Network, n: int = N) -> np.ndarray:
    size = int(np.prod(network.shape))
    return np.random.default_rng(0).integers(-128, 128, (n, size)).astype(np.int8)


def ours(network: Int8Network, codes: np.ndarray) -> np.ndarray:
    scorer = scorer_of(network, [0] * codes.shape[1])
    return score_codes((scorer,), 0, codes.T.astype(np.int64))


@pytest.mark.parametrize("activation", ["RELU", "RELU6", "NONE"])
@pytest.mark.parametrize("case", CASES)
def test_each_layer_that_was_written_is_read_and_gives_what_litert_does_or_one_step_beside_it(
    case: str, activation: str
) -> None:
    network = random_network(len(case), *CASES[case], activation)
    read = read_int8(write_int8(network, "SOFTMAX")).int8
    assert read is not None
    codes = inputs(network)
    np.testing.assert_array_equal(ours(read, codes), ours(network, codes))
    assert (ours(network, codes) == litert(network, codes)).mean() > 0.98
    assert np.ptp(litert(network, codes)) > 50
    shape, grid = network.shape, network.grid
    for layer in network.layers:
        alone = Int8Network(shape, grid, (layer,))
        outputs = ours(alone, codes)
        off = np.abs(outputs - litert(alone, codes))
        assert off.max() <= 1
        assert (off > 0).mean() < 0.001
        codes = (outputs + layer.grid.zero_point).astype(np.int8)
        shape, grid = layer.shape, layer.grid


def test_a_mean_with_a_scale_of_its_own_has_weights_of_one() -> None:
    network = random_network(3, (5, 7, 2), [conv(6, 3)])
    for grid in (network.layers[-1].grid, Grid(network.layers[-1].grid.scale / 2, 5)):
        mean = mean_layer((5, 7, 6), network.layers[-1].grid, grid)
        whole = replace(network, layers=(*network.layers, mean))
        read = read_int8(write_int8(whole)).int8
        assert read is not None
        assert [layer.operator for layer in read.layers] == ["CONV_2D", "MEAN"]
        assert np.abs(ours(read, inputs(whole)) - litert(whole, inputs(whole))).max() <= 1


def test_one_channel_that_becomes_several_is_a_convolution() -> None:
    g, rng = TfliteGraph(), np.random.default_rng(2)
    x = g.input("x", "i1", (1, 6, 5, 1), scale=0.02, zero_point=3)
    weights = g.const(rng.integers(-127, 128, (1, 3, 2, 4)), "i1", [0.01, 0.02, 0.01, 0.005], 3)
    bias = g.const(rng.integers(-500, 500, 4), "i4", [0.0002, 0.0004, 0.0002, 0.0001])
    out = g.tensor("i1", (1, 6, 5, 4), 0.03, zero_point=-10)
    same = {"strideH": 1, "strideW": 1, "dilationHFactor": 1, "dilationWFactor": 1, "depthMultiplier": 4}
    g.into("DEPTHWISE_CONV_2D", [x, weights, bias], out, **same)
    data = g.model("m", {"y": out})
    read = read_int8(data).int8
    assert read is not None
    assert read.layers[0].kind != DEPTHWISE
    codes = inputs(read)
    said = tflite_runner(data)({"x": codes.reshape(-1, 6, 5, 1)}).reshape(N, -1).astype(int) + 10
    assert np.abs(ours(read, codes) - said).max() <= 1


# ---------------------------------------------------------------- bundles


def test_the_command_writes_a_bundle_that_python_and_the_kernel_decide_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net.tflite").write_bytes(write_int8(SMALL, "SOFTMAX"))
    words = ["export", "--model", str(tmp_path / "net.tflite"), "--out", str(tmp_path / "m.hcb"), "--check", "400"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "int8 TFLite network, a scorer of integers; scores within" in said
    assert "400 of 400 as those of int8 TFLite network" in said
    machine = load_bundle(tmp_path / "m.hcb").machine
    program = machine.program
    assert isinstance(program.scorers[0], Network)
    rows = SMALL.grid.scale * (inputs(SMALL, 20).astype(float) - SMALL.grid.zero_point)
    rows = rows.astype(np.float32).astype(np.float64)
    expected = ours(SMALL, inputs(SMALL, 20)).argmax(axis=1).tolist()
    by_python = [decide(machine, row, None) for row in rows.tolist()]
    assert [d.result for d in by_python] == expected
    assert [decide(open_machine(program, KERNEL), row, None) for row in rows.tolist()] == by_python
    failed = decide(machine, [None] * 36, None)
    assert failed.result == ours(SMALL, np.full((1, 36), SMALL.grid.zero_point, np.int8)).argmax()


def test_one_output_is_a_value_and_behind_a_logistic_one_of_two_classes(tmp_path: Path) -> None:
    network = random_network(9, (1, 1, 6), [dense(8), dense(1)])
    (tmp_path / "v.tflite").write_bytes(write_int8(network))
    done = import_model(tmp_path / "v.tflite", tmp_path / "v.hcb", n_check=200)
    assert done.imported.match.differ == 0
    loaded = load_bundle(tmp_path / "v.hcb")
    assert done.imported.steps is not None
    for codes in inputs(network, 10):
        reading = network.grid.scale * (codes.astype(np.float32) - network.grid.zero_point)
        value = decide(loaded.machine, reading.astype(np.float32).astype(float).tolist(), None).result
        score = ours(network, codes[None])[0, 0]
        assert value / 2**done.imported.steps == pytest.approx(score * network.layers[-1].grid.scale, abs=1e-5)
    (tmp_path / "c.tflite").write_bytes(write_int8(network, "LOGISTIC"))
    found = import_model(tmp_path / "c.tflite", tmp_path / "c.hcb", n_check=200).imported
    assert found.source.classes == (0, 1)
    assert found.match.differ == 0
    assert len(found.parts.answer.confidences) > 1


def test_a_network_can_gate_another_one() -> None:
    gate = import_parts(
        read_int8(write_int8(random_network(1, (6, 6, 1), [conv(2, 3, 2), dense(1)]), "LOGISTIC")), n_check=50
    )
    lpc = import_parts(read_int8(write_int8(SMALL, "SOFTMAX")), n_check=50)
    layout = lpc.layout
    assert verify(gated(layout.features, layout.sensors, gate.parts, lpc.parts, n_classes=3)).operations > 0


def test_rows_say_what_a_missing_reading_counts_as() -> None:
    rows = np.full((5, 36), SMALL.grid.scale * 7)
    scorer = import_parts(read_int8(write_int8(SMALL)), rows=rows, n_check=10).parts.scorers[0]
    assert isinstance(scorer, Network)
    assert set(scorer.substitutes) == {min(127, SMALL.grid.zero_point + 7)}


@pytest.mark.parametrize("seed", range(20))
def test_a_number_of_the_grid_has_its_own_code_and_a_half_goes_up(seed: int) -> None:
    rng = random.Random(seed)
    grid = Grid(float(np.float32(2.0 ** rng.uniform(-39, 39))), rng.randint(-128, 127))
    if seed < 3:
        grid = Grid(2.0 ** (seed - 1), grid.zero_point)
    q = np.arange(-128, 128)
    exact = grid.scale * (q - grid.zero_point)
    for x in (exact, exact.astype(np.float32).astype(float)):
        np.testing.assert_array_equal(affine_codes(column_of(grid), x), q)
    halves = exact - grid.scale / 2 if seed < 3 else exact - grid.scale * 0.499
    np.testing.assert_array_equal(affine_codes(column_of(grid), halves), q)
    np.testing.assert_array_equal(affine_codes(column_of(grid), np.array([-3e38, 3e38])), [-128, 127])


@pytest.mark.parametrize(("what", "less"), [("digit", {}), ("sound", {"n": 1_500})])
def test_an_example_trains_quantises_and_writes_a_bundle_that_is_as_good(
    what: str, less: dict[str, int], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples" / "networks")
    runpy.run_path(str(ROOT / "examples" / "networks" / f"{what}_network.py"))["main"](tmp_path, epochs=3, **less)
    said = capsys.readouterr().out
    assert "labels as LiteRT's: 1000 of 1000" in said
    shares = [float(share) for share in re.findall(r"([\d.]+)%", said)]
    assert len(shares) == 3
    assert min(shares) > 85
    bundle = tmp_path / f"{what}s.hcb"
    assert isinstance(load_bundle(bundle).machine.program.scorers[0], Network)
    assert main(["export", str(bundle), "--onnx", str(tmp_path / "out")]) == 0
    assert "bytes, 64 of 64 golden cases as before" in capsys.readouterr().out


# ---------------------------------------------------------------- what is refused


def graph(
    *, kind: str = "CONV_2D", dtype: str = "i1", scale: float = 0.1, zero_point: int = 0, **options: Any
) -> bytes:
    g = TfliteGraph()
    x = g.input("x", dtype, (1, 4, 4, 2), scale=scale, zero_point=zero_point)
    weights = [g.const(np.ones((2, 1, 1, 2)), "i1", 0.1)] if kind == "CONV_2D" else []
    out = g.tensor(dtype, (1, 4, 4, 2), 0.1)
    usual = {"strideH": 1, "strideW": 1, "dilationHFactor": 1, "dilationWFactor": 1} if weights else {}
    g.into(kind, [x, *weights], out, **{**usual, **options})
    return g.model("m", {"y": out})


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (graph(kind="TANH"), "operator 0, TANH, is no layer of a program; leave that layer out"),
        (graph(kind="ADD"), "operator 0, ADD, is no layer"),
        (graph(dilationHFactor=2), "operator 0, CONV_2D, is dilated"),
        (graph(fusedActivationFunction=4), "operator 0, CONV_2D, has an activation other than NONE, RELU"),
        (graph(strideH=2), "CONV_2D, gives the shape"),
        (graph(dtype="f4"), "works on FLOAT32; quantise it whole, to int8"),
        (graph(scale=1e30), "has the scale 1e"),
        (graph(zero_point=200), "and zero point 200"),
        (graph(kind="RESHAPE"), "it has no layer"),
        (b"1234TFL3" + bytes(MAX_MODEL_BYTES), "at most 3000000 are read"),
        (b"no model", "does not begin like a TFLite file"),
    ],
)  # fmt: skip
def test_another_file_is_refused_in_one_line_that_names_the_operator(data: bytes, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read_int8(data)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_network_that_the_verifier_refuses_is_refused_before_anything_runs_it(tmp_path: Path) -> None:
    last = SMALL.layers[-1]
    assert last.bias is not None
    full = replace(last, bias=np.full_like(last.bias, 2**31 - 1))
    (tmp_path / "m.tflite").write_bytes(write_int8(replace(SMALL, layers=(*SMALL.layers[:-1], full))))
    with pytest.raises(InputError, match="cannot be proved: scorer 0, layer 2: a sum may reach"):
        import_model(tmp_path / "m.tflite", tmp_path / "m.hcb")
    layer = Int8Layer("MAX_POOL_2D", "max", (2, 2), (2, 2), (0, 0), (3, 3, 4), Grid(1.0, 0))
    with pytest.raises(InputError, match=r"layer 1 \(MAX_POOL_2D\) changes the scale"):
        ours(replace(SMALL, layers=(SMALL.layers[0], layer)), inputs(SMALL))
    assert not (tmp_path / "m.hcb").exists()


def test_damaged_files_are_refused_or_are_other_networks() -> None:
    data, rng, read, messages = write_int8(SMALL, "SOFTMAX"), random.Random(1), 0, list[str]()
    damaged = [data[: rng.randrange(len(data))] for _ in range(40)]
    for _ in range(120):
        flipped = bytearray(data)
        for _ in range(rng.choice([1, 2, 8])):
            flipped[rng.randrange(len(data))] = rng.choice([0, 255, rng.randrange(256)])
        damaged.append(bytes(flipped))
    for part in damaged:
        try:
            source = read_int8(part)
            assert source.int8 is not None
            width = len(source.base)
            safe = replace(source.int8, run=lambda codes, width=width: np.zeros((len(codes), width)))
            verify(import_parts(replace(source, int8=safe), n_check=10).program())
            read += 1
        except HardcaseError as error:
            messages.append(str(error))
    assert read > 15
    assert not [message for message in messages if "\n" in message]
