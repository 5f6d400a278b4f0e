# SPDX-License-Identifier: Apache-2.0
"""JSON and live estimators of interpret's EBMs: scores and labels are theirs bit for bit, and damage is refused."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.errors import HardcaseError, InputError
from hardcase_export.foreign_model import import_model, import_parts, read_model
from hardcase_export.hpc_file.given import open_given
from hardcase_export.importing.reference import labels_of_scores, reference_scores
from hardcase_export.sources.from_interpret import MAX_JSON_BYTES, read_interpret
from tests.helpers.places import DATA

from .test_import import N, same_labels

NAMES = ["a", "b", "c", "d"]


@cache
def recorded() -> dict[str, Any]:
    """Models of interpret 0.7.8, rows at, beside and far from their cuts and categories, and what it says of them."""
    return dict(json.loads((DATA / "interpret-0.7.8.json").read_text()))


def written(name: str, **changed: Any) -> bytes:
    """The file of a recorded model; keywords change its parts."""
    model = json.loads(json.dumps(recorded()[name]["model"]))
    model["ebm"].update(changed)
    return json.dumps(model).encode()


def rows_of(name: str) -> np.ndarray:
    return np.array(recorded()[name]["rows"], dtype=np.float64)


@pytest.mark.parametrize("name", ["two", "three", "value"])
def test_scores_of_a_file_are_interpret_s_bit_for_bit(name: str, tmp_path: Path) -> None:
    (tmp_path / "ebm.json").write_bytes(written(name))
    source, rows = read_model(tmp_path / "ebm.json"), rows_of(name)
    assert np.isnan(rows).any()
    scores = reference_scores(source, rows)
    assert scores.tolist() == recorded()[name]["scores"]
    if source.classes:
        assert [source.classes[k] for k in labels_of_scores(scores)] == recorded()[name]["answers"]
    done = import_model(tmp_path / "ebm.json", tmp_path / "m.hcb", rows=rows, n_check=N)
    same_labels(done.imported)
    assert load_bundle(done.path).manifest.features == tuple(NAMES)


@pytest.mark.parametrize("name", ["two", "three", "value"])
def test_an_ebm_may_be_f0(name: str, tmp_path: Path) -> None:
    (tmp_path / "ebm.json").write_bytes(written(name))
    said, some = recorded()[name], rows_of(name)[:20]
    plain = np.flatnonzero(~np.isin(some[:, 2], [0.1, 0.1 + 0.2]))  # float32 holds all categories of these rows
    rows = some[plain]
    classes = () if name == "value" else said["model"]["ebm"]["outputs"][0]["classes"]
    given = open_given(tmp_path / "ebm.json", NAMES, ["f64"] * 4, classes, rows)
    if name == "value":
        assert np.allclose(given.predict(rows), np.ravel(said["scores"])[plain], atol=1e-5)
        return
    p = given.predict_proba(rows)
    assert [classes[k] for k in p.argmax(axis=1)] == [said["answers"][k] for k in plain]


# ---------------------------------------------------------------- damage

Change = Callable[[dict[str, Any]], Any]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(lambda m: m["outputs"][0].update(link="log"), "has the link 'log'; train it with", id="link"),
        pytest.param(lambda m: m["outputs"].append({}), "is damaged", id="outputs"),
        pytest.param(lambda m: m["outputs"][0].update(classes=["one"]), "the single class", id="one class"),
        pytest.param(lambda m: m["outputs"][0].update(classes=[0, 0, 1]), "the same class twice", id="same class"),
        pytest.param(lambda m: m["outputs"][0].update(classes=[0, [1], 2]), "neither text nor a number", id="class"),
        pytest.param(lambda m: m.update(intercept=[0.5]), "scores of term 0 that", id="intercept"),
        pytest.param(lambda m: m.update(intercept=["nan"] * 3), "intercept that are not finite", id="text intercept"),
        pytest.param(lambda m: m.update(features=m["features"][:2]), "damaged", id="features"),
        pytest.param(lambda m: m["features"][1].update(name="a"), "two features of one name", id="names"),
        pytest.param(lambda m: m["features"][0].update(type="odd"), "damaged", id="type"),
        pytest.param(lambda m: m["features"][0].update(cuts=[]), "damaged", id="no cuts"),
        pytest.param(lambda m: m["features"][0]["cuts"][0].reverse(), "cuts of 'a' that do not increase", id="cuts"),
        pytest.param(lambda m: m["features"][0]["cuts"][0].append(9e9), "scores of shape", id="more cuts"),
        pytest.param(lambda m: m["features"][0]["cuts"][0].append("+inf"), "cuts that are not finite", id="far cut"),
        pytest.param(lambda m: m["features"][1]["categories"][0].append("5"), "scores of shape", id="categories"),
        pytest.param(
            lambda m: m["features"][1]["categories"][0].append("-2"), "category '-2' of 'b' twice", id="twice"
        ),
        pytest.param(lambda m: m["features"][1]["categories"][0].append("up"), "'up' of 'b', which is no", id="text"),
        pytest.param(lambda m: m["features"][1]["categories"][0].append("1.0"), "which is no number", id="other text"),
        pytest.param(lambda m: m["features"][1]["categories"][0].append("1e999"), "which is no number", id="infinite"),
        pytest.param(lambda m: m["features"][1]["categories"][0].append(7), "which is no number", id="number"),
        pytest.param(lambda m: m["terms"][0].update(term_features=["z"]), "damaged", id="term"),
        pytest.param(lambda m: m["terms"][0].update(term_features=[]), "reads 0 features", id="empty term"),
        pytest.param(lambda m: m["terms"][4].update(term_features=["a", "a"]), "maybe one twice", id="pair of one"),
        pytest.param(lambda m: m["terms"][4].update(scores=m["terms"][0]["scores"]), "scores of term 4", id="pair"),
        pytest.param(lambda m: m["terms"][0]["scores"].pop(), "scores of shape", id="scores"),
        pytest.param(lambda m: m["terms"][0]["scores"][2].pop(), "damaged", id="ragged"),
        pytest.param(lambda m: m["terms"][0]["scores"][2].__setitem__(0, float("inf")), "not finite", id="score"),
        pytest.param(lambda m: m["terms"][0].update(scores=[True]), "not finite numbers", id="no numbers"),
        pytest.param(lambda m: m.clear(), "damaged", id="nothing"),
    ],
)
def test_a_json_that_does_not_hold_together_is_refused_in_one_line(change: Change, said: str) -> None:
    model = json.loads(written("three"))
    change(model["ebm"])
    with pytest.raises(InputError, match=said) as caught:
        read_interpret(json.dumps(model).encode())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ['{"ebm":' + "[" * 100_000, '{"ebm": NaN}', '{"ebm": {}}', '{"ebm"', '{"ebm": {"outputs": 1}}', "[]", '{"a": 1}'],
)
def test_json_of_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        read_interpret(text.encode())


def test_a_key_that_stands_twice_and_an_oversized_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_bytes(written("two").replace(b'"intercept"', b'"intercept": [0], "intercept"', 1))
    with pytest.raises(InputError, match="a key stands twice"):
        read_model(tmp_path / "m.json")
    with pytest.raises(InputError, match="at most"):
        read_interpret(b'{"ebm"' + b" " * MAX_JSON_BYTES)


def test_a_term_of_more_cells_than_a_tree_holds_is_refused() -> None:
    n = 200
    cuts = [[float(k) for k in range(n)]]
    features = [{"name": name, "type": "continuous", "cuts": cuts} for name in "ab"]
    term = {"term_features": ["a", "b"], "scores": np.zeros((n + 3, n + 3)).tolist()}
    with pytest.raises(InputError, match="train it with a smaller max_interaction_bins"):
        read_interpret(written("two", features=features, terms=[term]))


@settings(max_examples=60)
@given(st.data())
def test_an_ebm_s_numbers_may_be_anything(data: Any) -> None:
    words = written("three").decode().split(" ")
    k = data.draw(st.integers(0, len(words) - 1))
    words[k] = data.draw(
        st.sampled_from(
            ["-1,", "0,", "99,", "1e308,", "-1e-310,", "NaN,", "Infinity,", "[]", "null,", '"x"', "5e-324]"]
        )
    )
    with contextlib.suppress(HardcaseError), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        import_parts(read_interpret(" ".join(words).encode()), n_check=20)
