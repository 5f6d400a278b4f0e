# SPDX-License-Identifier: Apache-2.0
"""``hardcase gate`` on the four logs of rented models that FrugalML published: one command each, as a user types it.

HARDCASE_DATA=FOLDER python -m benchmarks run gate_logs

The log of a set is a CSV of all its rows. The gate's figures are of the test rows of that command, a fifth of the log;
those of FrugalML are means of the five halves of ``benchmarks run budgeted``, with the same budget.
"""

from __future__ import annotations

import io
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.budgeted.cases import data
from benchmarks.pages import markdown
from benchmarks.runner import RESULTS

SETS = {"rafdb": 5.0, "ferplus": 5.0, "yelp": 0.75, "digit": 25.0}  # and the mean price of 10,000 requests


def log_of(name: str) -> str:
    """A set's log as CSV, with the columns that ``hardcase gate`` recognises; a label of -1 is no answer."""
    with np.load(data() / "apis" / f"api_{name}.npz") as z:
        labels, sure, truth, meta = z["labels"], z["confidence"], z["truth"], str(z["meta"])
    apis = [line.split(",")[1:3] for line in meta.splitlines()[1:] if line.strip()]
    names = [api.partition("(")[0].lower() for api, _ in apis]
    out = io.StringIO()
    print("truth", *(f"{n}_{what}" for n in names for what in ("label", "confidence", "price")), sep=",", file=out)
    for right, row, confidences in zip(truth, labels, sure, strict=True):
        said = (
            f"{'' if label < 0 else label},{confidence:.6g},{price}"
            for label, confidence, (_, price) in zip(row, confidences, apis, strict=True)
        )
        print(right, *said, sep=",", file=out)
    return out.getvalue()


def frugal(name: str, budget: float) -> float | None:
    """The mean accuracy of FrugalML with this budget, in the record of the benchmark of budgets."""
    seeds = json.loads((RESULTS / "budgeted.json").read_text(encoding="utf-8")).get(name, {}).get("FrugalML", {})
    found = [one["wishes"].get(f"mean {budget:g}", {}).get("accuracy") for one in seeds.values()]
    return statistics.mean(found) if found and None not in found else None


def measured(name: str, budget: float, folder: Path) -> dict[str, Any]:
    """The gate of one set: one command, and what it prints."""
    log = folder / f"{name}.csv"
    log.write_text(log_of(name), encoding="utf-8")
    words = ["gate", str(log), "--budget", str(budget), "--out", str(folder / name), "--json"]
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "hardcase.cli", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    said = json.loads(done.stdout)
    within = {api: one for api, one in said["alone"].items() if one["price"] <= budget}
    return {
        "budget": budget, "rows": len(log.read_text(encoding="utf-8").splitlines()) - 1, "n": said["test"]["n"],
        "accuracy": said["test"]["quality"], "accuracy_95": said["quality_95"], "price": said["test"]["cost"],
        "alone": said["alone"], "within": max(within, key=lambda api: within[api]["accuracy"]),
        "frugal": frugal(name, budget), "seconds": time.monotonic() - began,
    }  # fmt: skip


def run(args: Any) -> dict[str, Any]:
    """All four."""
    with tempfile.TemporaryDirectory() as folder:
        return {name: measured(name, budget, Path(folder)) for name, budget in SETS.items()}


def page(m: dict[str, Any]) -> str:
    """The table."""
    rows = []
    for name, one in m.items():
        alone, within = one["alone"], one["within"]
        best = max(alone, key=lambda api: alone[api]["accuracy"])
        low, high = one["accuracy_95"]
        rows.append((
            name.upper(), f"{one['rows']:,}", f"{one['budget']:g}", f"{one['price']:.2f}",
            f"**{one['accuracy']:.4f}** ({low:.4f} to {high:.4f})",
            f"{within} {alone[within]['accuracy']:.4f} at {alone[within]['price']:g}",
            f"{best} {alone[best]['accuracy']:.4f} at {alone[best]['price']:g}",
            "not run" if one["frugal"] is None else f"{one['frugal']:.4f}", f"{one['seconds']:.0f} s",
        ))  # fmt: skip
    head = (
        "log",
        "rows",
        "budget",
        "price",
        "accuracy of the gate",
        "best API within it",
        "best API",
        "FrugalML",
        "time",
    )
    over = [name.upper() for name, one in m.items() if one["price"] > one["budget"]]
    spent = (
        f"The price is above the budget on test rows of {', '.join(over)}" if over else "No price is above its budget"
    )
    return f"{spent}; prices are dollars per 10,000 requests.\n\n{markdown(head, rows)}\n"
