# SPDX-License-Identifier: Apache-2.0
"""Bundles whose names are attacks on a page, and what of them has worked in a browser."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from hardcase.playground.page import playground_page
from hardcase_edge.bundle.file import pack_bundle, unpack_bundle
from hardcase_edge.bundle.load import Loaded, load_bytes
from tests.golden.make_golden import GOLDEN
from tests.helpers.cli.browser import Browser
from tests.helpers.cli.pages import HOSTILE


def hostile_bundle(k: int) -> Loaded:
    """The golden bundle with names that would be markup, script, the end of a block, or what every object has."""
    rng = random.Random(k)
    parts = [
        *HOSTILE, "</script><script>document.title='owned'</script>", "<!--", "]]>", "\u2028'", "__proto__", "${1}",
    ]  # fmt: skip

    def name(n: int) -> str:
        return "".join(rng.choice(parts) for _ in range(2)) + str(n)

    bundle = unpack_bundle(GOLDEN.read_bytes())
    manifest = dict(bundle.manifest)
    for key in ("features", "sensors", "classes"):
        manifest[key] = [name(n) for n in range(len(manifest[key]))]
    if k % 2:
        own = ["__proto__", "constructor", "toString", "valueOf", "hasOwnProperty"]
        manifest["features"][:3] = rng.sample(own, 3)
    texts = {manifest["features"][n]: HOSTILE for n, f in enumerate(bundle.program.features) if f.dtype == "i32"}
    manifest |= {"categories": texts, "name": name(0)[:100], "unit": name(1)[:60], "target": name(2)[:100]}
    return load_bytes(pack_bundle(replace(bundle, manifest=manifest)))


def faults_of(browser: Browser, loaded: Loaded, folder: Path) -> list[str]:
    """What is not as it should be on the playground of this bundle; the page is written into the folder."""
    (folder / "page.html").write_text(playground_page(loaded), encoding="utf-8")
    browser.open((folder / "page.html").as_uri())
    browser.until("document.documentElement.dataset.ready")
    name = "document.querySelector('#sensor-0 legend').textContent"
    checks = {
        "a script has run": browser.evaluate("document.title") != "owned",
        "cases differ": browser.evaluate("document.getElementById('checked').textContent").startswith("64 of 64"),
        "a name is no text": browser.evaluate(name) == loaded.manifest.sensors[0],
        "scripts were added": browser.evaluate("document.querySelectorAll('script').length") == 2,
        "pictures were added": browser.evaluate("document.querySelectorAll('img').length") == 0,
        "something was loaded": browser.evaluate("performance.getEntriesByType('resource').length") == 0,
    }
    return [fault for fault, is_good in checks.items() if not is_good]
