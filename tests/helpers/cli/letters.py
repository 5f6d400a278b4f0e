# SPDX-License-Identifier: Apache-2.0
"""A table of items of several parts, whose labels are those of a chain that sees both sensors, and its TOML."""

from __future__ import annotations

from pathlib import Path

from hardcase_export.joint.model import decode
from tests.helpers.export.joint_models import small_chain, small_items

COLUMNS = ("h0", "p0", "p1", "h1", "p2", "p3", "p4", "h2", "h3", "h4", "h5")  # not in the order of the sensors
TOML = """
[data]
file = "letters.csv"
target = "letter"
item = "label"
[cost.uplink]
per_request = 9.0
[hpc]
estimator = "LogisticRegression"
[joint]
shares = [0.3]
releases = ["one-shot"]
ask = 0.1
weight_bits = 16
{more}
[[sensor]]
name = "pixels"
features = ["p*"]
cost = 1.0
[[sensor]]
name = "hog"
features = ["h*"]
cost = 4.0
"""


def write(folder: Path, more: str = "", edit: tuple[str, str] = ("", ""), n: int = 120) -> Path:
    """A table whose labels are those of a chain that sees both sensors, and its TOML."""
    model = small_chain()
    items, _ = small_items(n)
    names = [*model.cheap.features, *model.dear.features]
    rows = [["label", "letter", *COLUMNS]]
    for k, item in enumerate(items):
        unary = item @ model.dear_weights[:-1] + model.dear_weights[-1]
        for cells, label in zip(item, decode(model, unary)[0], strict=True):
            by_name = dict(zip(names, cells, strict=True))
            rows.append([f"n{k % (n - 1)}", "abcd"[label], *(repr(float(by_name[c])) for c in COLUMNS)])
    (folder / "letters.csv").write_text("\n".join(map(",".join, rows)))
    path = folder / "hardcase.toml"
    path.write_text(TOML.format(more=more).replace(*edit))
    return path
