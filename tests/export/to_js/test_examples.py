# SPDX-License-Identifier: Apache-2.0
"""The examples in JavaScript, without what they are installed into: names of a policy are only names to them."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hardcase.cli import main
from hardcase_edge.bundle.file import pack_bundle
from tests.helpers.cloud.requests import ask, half_forwarding
from tests.helpers.places import ROOT
from tests.helpers.tools import need

SHA = "ab" * 32
NODE_RED = """
import { createRequire } from "node:module";
const [node, folder, messages, timeout] = process.argv.slice(1);
let make;
const nodes = {
  createNode: (self) => { self.on = (what, act) => { self[what] = act; }; },
  registerType: (_, made) => { make = made; },
};
createRequire(node)(node)({ nodes });
const self = {}, out = [], send = (said) => out.push(said);
make.call(self, { folder, timeout });
for (const msg of JSON.parse(messages)) {
  await new Promise((done) => self.input(msg, send, (error) => done(error && send(error.message))));
}
await new Promise((done) => setTimeout(done, 250));
self.close();
console.log(JSON.stringify(out));
"""
WORKER = """
const [folder, worker, hex] = process.argv.slice(1);
const { unpack } = await import(worker);
const { default: model } = await import(folder + "/model.json", { with: { type: "json" } });
console.log(JSON.stringify(Object.entries(unpack(Buffer.from(hex, "hex"), model).readings)));
"""


def exported(folder: Path, **names: list[str]) -> Path:
    """The package of a policy that forwards hard cases, under these names."""
    bundle = half_forwarding(SHA).bundle
    data = pack_bundle(replace(bundle, manifest={**bundle.manifest, **names}))
    (folder / "model.hcb").write_bytes(data)
    assert main(["export", str(folder / "model.hcb"), "--js", str(folder / "policy")]) == 0
    return folder / "policy"


def node(script: str, *words: object) -> Any:
    (command,) = need("node")
    shown = [command, "--input-type=module", "-e", script, *map(str, words)]
    made = subprocess.run(shown, capture_output=True, text=True, timeout=60, check=False)
    assert made.returncode == 0, made.stderr[-2000:]
    return json.loads(made.stdout)


@pytest.mark.parametrize(
    ("sensors", "messages", "topics", "route"),
    [
        pytest.param(["f0", "b"], [{"payload": {"f0": [-2], "b": [-3]}}], [], "local", id="a-sensor-is-called-f0"),
        pytest.param(["f0", "b"], [{"payload": {"f0": [3], "b": [-3]}}], ["f0"], "degraded", id="and-f0-is-silent"),
        pytest.param(["a", "b"], [{"payload": {"a": [3], "b": [-3], "f0": 5}}], ["f0"], "degraded", id="given-f0"),
        pytest.param(
            ["f0", "b"],
            [
                {"payload": {}},
                {"topic": "f0", "decision": "1", "payload": [3]},
                {"topic": "b", "decision": "1", "payload": [-3]},
                {"topic": "f0", "decision": "1", "payload": {"result": 1, "confidence": 9_000}},
            ],
            ["f0", "b", "f0"],
            "cloud",
            id="both-are-asked-for",
        ),
    ],
)
def test_the_node_of_node_red_tells_f0_from_a_sensor_of_that_name(
    tmp_path: Path, sensors: list[str], messages: list[dict[str, Any]], topics: list[str], route: str
) -> None:
    policy = exported(tmp_path, sensors=sensors)
    timeout_ms = 100 if route == "degraded" else 60_000  # of a silent f0, or for what is said
    out = node(NODE_RED, ROOT / "examples" / "node-red" / "hardcase.js", policy, json.dumps(messages), timeout_ms)
    assert [asked["topic"] for _, asked in out[:-1]] == topics
    assert out[-1][0]["payload"]["route"] == route


def test_the_worker_gives_readings_by_whatever_name(tmp_path: Path) -> None:
    names = ["__proto__", "constructor"]
    policy, request = exported(tmp_path, features=names), ask(1, (5.0, 1.0), SHA, 4_000)
    shutil.copyfile(ROOT / "examples" / "worker-js" / "worker.mjs", tmp_path / "worker.mjs")
    (tmp_path / "node_modules" / "mqtt").mkdir(parents=True)
    (tmp_path / "node_modules" / "mqtt" / "index.js").write_text("")
    said = node(WORKER, policy, tmp_path / "worker.mjs", request.hex())
    assert said == [[name, x] for name, x in zip(names, (5.0, 1.0), strict=True)]
