# SPDX-License-Identifier: Apache-2.0
"""The npm package: decisions in Node and Chromium are Python's and C's bit for bit, and forged images do no harm."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from base64 import b64encode
from pathlib import Path

import pytest

from hardcase.cli import main
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.kernel.image import make_image
from hardcase_export.to_js.wasm import wasm_kernel
from tests.golden.make_golden import GOLDEN, golden_program
from tests.helpers.cli.browser import BROWSER, Browser
from tests.helpers.edge.evaluators import needs_kernel
from tests.helpers.export.js_cases import REPLAY, exported_golden, replayed_in, write_js_cases
from tests.helpers.places import ROOT
from tests.helpers.tools import need

TSC = ROOT / "build" / "node-red" / "node_modules" / "typescript" / "bin" / "tsc"
USE = """
import { load, type Decision, type NeedSensors } from "hardcase";
const image = Uint8Array.from(atob("IMAGE"), (c) => c.charCodeAt(0));
const policy = await load(image);
const session = policy.session({ budget: 10n ** 12n, dead: [] });
let action = session.next();
while (action.need !== null) {
  if (action.need === "sensors") for (const k of action.sensors) session.feed(k, policy.sensors[k].map(() => null));
  else session.reply(0, action.request.length);
  action = session.next();
}
const decision: Decision = action;
// @ts-expect-error: a reading is no text
if (decision.confidence < 0) policy.decide([["1"]]);
// @ts-expect-error: a decision needs nothing
const wanted: NeedSensors = decision;
console.log(decision.route, typeof decision.exact.cost, typeof wanted);
"""
COUNT = 100  # random programs; benchmarks/wasm.py takes 10,000
FORGED = 400


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of the golden bundle."""
    return exported_golden(tmp_path_factory, "js")


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A file of decisions, and how many they are."""
    path = tmp_path_factory.mktemp("cases") / "cases.jsonl"
    return path, write_js_cases(path, COUNT)


def node(*words: object, script: str = "") -> str:
    """What Node prints of a file, or of a script."""
    (command,) = need("node")
    how = ["--input-type=module", "-e", script] if script else []
    made = subprocess.run([command, *how, *map(str, words)], capture_output=True, text=True, timeout=120, check=False)
    assert made.returncode == 0, made.stderr[-2000:]
    return made.stdout


def test_the_package_has_types_and_no_dependencies(package: Path) -> None:
    names = {path.name for path in package.iterdir()} - {".hardcase.json"}
    described = json.loads((package / "package.json").read_text())
    assert names == {"package.json", *described["files"]}
    assert not {"dependencies", "peerDependencies", "scripts"} & set(described)
    assert len((package / "hardcase.wasm").read_bytes()) <= 25_000
    assert json.loads((package / "model.json").read_text())["sha256"] == load_bundle(GOLDEN).bundle.sha256


def test_a_use_in_typescript_is_checked_by_the_types_and_runs(package: Path, tmp_path: Path) -> None:
    if not TSC.exists():
        pytest.skip("typescript is needed: make toolchains")
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "hardcase").symlink_to(package)
    (tmp_path / "use.mts").write_text(USE.replace("IMAGE", b64encode(make_image(golden_program())).decode()))
    node(TSC, "--strict", "--module", "nodenext", "--target", "es2022", tmp_path / "use.mts")
    assert node(tmp_path / "use.mjs").split()[1:] == ["bigint", "object"]


def test_the_kernel_as_webassembly_imports_nothing(package: Path) -> None:
    script = f"""
        import {{ readFileSync }} from "node:fs";
        const module = await WebAssembly.compile(readFileSync("{package / "hardcase.wasm"}"));
        console.log(JSON.stringify(WebAssembly.Module.imports(module)));
    """
    listed = node(script=script)
    assert listed == "[]\n"


@needs_kernel
def test_node_decides_as_python_and_c(package: Path, cases: tuple[Path, int]) -> None:
    path, n = cases
    assert node(REPLAY, package, path) == f"{n}\n"


def test_a_decision_that_differs_would_be_seen(package: Path, cases: tuple[Path, int], tmp_path: Path) -> None:
    first = json.loads(cases[0].read_text().splitlines()[0])
    first["cases"][7]["expected"]["cost"] += "0"
    (tmp_path / "one.jsonl").write_text(json.dumps(first) + "\n")
    with pytest.raises(AssertionError, match="is not"):
        node(REPLAY, package, tmp_path / "one.jsonl")


@needs_kernel
def test_chromium_decides_as_python_and_c(package: Path, cases: tuple[Path, int], tmp_path: Path) -> None:
    need(BROWSER)
    path, n = cases
    with Browser(tmp_path) as browser:
        assert replayed_in(browser, package, path.read_text().splitlines(), tmp_path / "page.html") == str(n)


def test_forged_images_are_refused_in_one_line_or_decide(package: Path, tmp_path: Path) -> None:
    """Bits flipped, words replaced, cut short: an Error of one line, or a decision that ends; nothing else."""
    (tmp_path / "image").write_bytes(make_image(golden_program()))
    script = f"""
        import {{ readFileSync }} from "node:fs";
        const {{ Policy }} = await import("file://{package}/hardcase.js");
        const kernel = await WebAssembly.compile(readFileSync("{package / "hardcase.wasm"}"));
        const sound = readFileSync("{tmp_path / "image"}");
        const counts = {{ refused: 0, decided: 0 }};
        let seed = 1;
        const random = (n) => (seed = (seed * 48271) % 2147483647) % n;
        for (let k = 0; k < {FORGED}; k++) {{
          const image = Uint8Array.from(k % 9 ? sound : sound.subarray(0, random(sound.length)));
          const most = Math.min([256, image.length, 128][k % 3], image.length);
          for (let i = 0; i <= random(3) && most; i++) image[random(most)] ^= 1 << random(8);
          if (k % 7 === 0 && image.length > 12) new DataView(image.buffer).setUint32(8, 0xfffffff8, true);
          try {{
            const policy = new Policy(kernel, image);
            const readings = policy.sensors.map((types) => types.map(() => random(100) - 50));
            const made = [true, false].map((cloud) => policy.decide(readings, {{ cloud, reply: [0, 5000] }}));
            counts.decided += made.every((decision) => decision.trace.length > 0);
          }} catch (error) {{
            if (error.constructor !== Error || error.message.includes("\\n")) throw error;
            counts.refused++;
          }}
        }}
        console.log(JSON.stringify(counts));
    """
    counts = json.loads(node(script=script))
    assert counts["refused"] + counts["decided"] == FORGED
    assert min(counts.values()) > FORGED // 10


@pytest.mark.parametrize(
    ("call", "line"),
    [
        ("await load({})", "undefined bytes cannot be an image; export the policy again"),
        ("await load(new Uint8Array(130))", "130 bytes cannot be an image; export the policy again"),
        ("policy.session({ budget: 0.5 })", "0.5 is not a whole number of 64 bits"),
        ("policy.session({ itemSize: 1e9 })", "the program has no such sensor, node, item size, result or confidence"),
        ("policy.session({ dead: [99] })", "the program has no such sensor, node, item size, result or confidence"),
        ("policy.session().feed(0, [1])", "this call does not answer what next() asked for"),
        ("policy.move(0, 1)", "the program has no such sensor, node, item size, result or confidence"),
    ],
)
def test_a_wrong_call_is_an_error_of_one_line(package: Path, call: str, line: str) -> None:
    script = f"""
        import {{ readFileSync }} from "node:fs";
        const {{ load }} = await import("file://{package}/hardcase.js");
        const model = JSON.parse(readFileSync("{package / "model.json"}", "utf-8"));
        const policy = await load(Buffer.from(model.image, "base64"));
        try {{ {call}; }} catch (error) {{ console.log(error.message); }}
    """
    assert node(script=script) == f"{line}\n"


def test_readings_that_are_not_a_sensors_numbers_make_it_fail(package: Path) -> None:
    script = f"""
        import {{ readFileSync }} from "node:fs";
        const {{ load }} = await import("file://{package}/hardcase.js");
        const model = JSON.parse(readFileSync("{package / "model.json"}", "utf-8"));
        const policy = await load(Buffer.from(model.image, "base64"));
        const failed = [null, undefined, [], [1, 2], ["1"], [{{}}], "x"].map((readings) => {{
          const session = policy.session({{ cloud: false }});
          session.feed(session.next().sensors[0], readings);
          session.next();
          return session.progress().failed.length;
        }});
        console.log(failed.join());
    """
    assert node(script=script) == "1,1,1,1,1,1,1\n"


def test_without_zig_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    wasm_kernel.cache_clear()
    assert main(["export", str(GOLDEN), "--js", str(tmp_path / "policy")]) == 2
    line = "hardcase export: the kernel as WebAssembly needs Zig's C compiler: pip install ziglang\n"
    assert capsys.readouterr().err == line
