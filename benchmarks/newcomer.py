# SPDX-License-Identifier: Apache-2.0
"""What a newcomer does with the README alone: a fresh clone, a slider that is moved, a gate that is asked; in seconds.

    python -m benchmarks run newcomer

The commands are read from README.md and docs/gate-server.md of the clone, and run in it as they stand there.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from benchmarks.pages import ROOT, markdown
from tests.helpers.cli.browser import Browser
from tests.helpers.cloud.brokers import free_port

READY = "document.documentElement.dataset.ready"
SLIDER, SLIDER_GOAL_S, GATE_GOAL_S = "budget", 120, 300
HERE = "127.0.0.1:8091"  # where the page's server listens without --bind


def playground_commands(readme: str) -> list[str]:
    """Those of the paragraph "Touch it": they set up, activate, and write the page.

    >>> playground_commands("[Touch it](x): after `make venv` and `. a`, `hardcase playground m.hcb --out p.html` so.")
    ['make venv', '. a', 'hardcase playground m.hcb --out p.html']
    """
    return re.findall(r"`([^`]+)`", re.split(r"\n\s*\n", readme[readme.index("[Touch it]") :])[0])


def gate_commands(readme: str) -> tuple[str, str, str]:
    """The command that makes a gate, the log in it, and the example that the README names for those without one."""
    command = re.search(r"^(hardcase gate (\S+).*?) +#", readme, re.M)
    example = re.search(r"make a gate of `([^`]+)`", readme)
    if command is None or example is None:
        raise SystemExit("README.md shows no command that makes a gate of a log, or names no log to try it with")
    return command[1], command[2], example[1]


def server_commands(page: str) -> tuple[str, str]:
    """The command that serves a gate, and the one that asks it."""
    serve, curl = (re.findall(rf"^{verb}.*$", page, re.M)[0] for verb in ("hardcase serve", "curl"))
    return serve, curl


def run(args: Any) -> dict[str, Any]:
    """All steps, each with its seconds."""
    seconds: dict[str, float] = {}

    def timed(what: str, do: Callable[[], Any]) -> Any:
        began = time.monotonic()
        made = do()
        seconds[what] = round(time.monotonic() - began, 2)
        print(f"{seconds[what]:8.2f} s  {what}", flush=True)
        return made

    with tempfile.TemporaryDirectory() as name:
        clone = Path(name) / "hardcase"
        timed("git clone", lambda: subprocess.run(["git", "clone", "-q", ROOT, clone], check=True))
        readme = (clone / "README.md").read_text(encoding="utf-8")
        setup, activate, playground = playground_commands(readme)

        def shell(line: str) -> None:
            done = subprocess.run(["sh", "-ec", line], cwd=clone, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{line}: {done.stderr.strip()[-500:]}")

        timed(setup, lambda: shell(setup))
        timed(playground, lambda: shell(f"{activate}\n{playground}"))
        answer = timed("open it and move its slider", lambda: _moved(clone / playground.split()[-1], Path(name)))
        gate, log, example = gate_commands(readme)
        shutil.copy(clone / example, clone / log)
        timed(gate, lambda: shell(f"{activate}\n{gate}"))
        said = timed("serve it and ask it for one decision", lambda: _asked(clone, activate))
    return {"seconds": seconds, "setup": setup, "playground": playground, "gate": gate, "log": example,
            "slider": answer, "decision": said}  # fmt: skip


def _moved(page: Path, folder: Path) -> dict[str, Any]:
    """What the page said of its budget before and after an arrow key on the slider."""
    said = f"document.getElementById('{SLIDER}-said').textContent"
    with Browser(folder) as browser:
        browser.open(page.as_uri())
        browser.until(READY)
        before = browser.evaluate(said)
        browser.evaluate(f"document.getElementById('{SLIDER}').focus()")
        for kind in ("rawKeyDown", "keyUp"):
            browser.call(
                "Input.dispatchKeyEvent", type=kind, key="ArrowLeft", code="ArrowLeft", windowsVirtualKeyCode=37
            )
        browser.until(f"{said} !== {json.dumps(before)}")
        return {"before": before, "after": browser.evaluate(said)}


def _asked(clone: Path, activate: str) -> dict[str, Any]:
    """The answer of the gate's server to the page's own request; a server here stands for all its APIs."""
    serve, curl = server_commands((clone / "docs" / "gate-server.md").read_text(encoding="utf-8"))
    apis = json.loads((clone / "gate" / "gate.json").read_text(encoding="utf-8"))["apis"]
    with _back_end() as url:
        tables = "".join(f'[apis.{api["name"]}]\nurl = "{url}"\n' for api in apis)
        (clone / serve.split()[-1]).write_text(f'name = "newcomer"\nfolder = "gate"\n{tables}', encoding="utf-8")
        at = f"127.0.0.1:{free_port()}"
        line = f"{activate}\nexec {serve} --bind {at}"
        server = subprocess.Popen(["sh", "-ec", line], cwd=clone, stdout=subprocess.DEVNULL)
        try:
            until, ask = time.monotonic() + 60, f"{curl.replace(HERE, at)} --silent --fail"
            while (done := subprocess.run(["sh", "-c", ask], capture_output=True, check=False)).returncode:
                if time.monotonic() > until or server.poll() is not None:
                    raise SystemExit(f"{serve} has not answered: {ask}")
                time.sleep(0.05)
        finally:
            server.terminate()
            server.wait(30)
    return dict(json.loads(done.stdout))


@contextmanager
def _back_end() -> Iterator[str]:
    """The URL of a server that answers every request with one label."""

    class Back(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            data = b'{"label": "3", "confidence": 0.8}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Back) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/classify"
        server.shutdown()


def totals(m: dict[str, Any]) -> dict[str, float]:
    """Seconds from a bundle to a moved slider, and from a log to a gate that has answered."""
    s = list(m["seconds"].values())
    return {"slider": s[2] + s[3], "gate": s[4] + s[5]}


def page(m: dict[str, Any]) -> str:
    """The steps."""
    whole, names = totals(m), list(m["seconds"])
    rows = [(f"`{name}`" if k in (0, 1, 2, 4) else name, f"{m['seconds'][name]:.1f}") for k, name in enumerate(names)]
    rows += [("from a bundle to a moved slider (goal: 120)", f"{whole['slider']:.1f}"),
             ("from a log of answers to a gate that has answered (goal: 300)", f"{whole['gate']:.1f}")]  # fmt: skip
    decision = m["decision"]
    return (
        f"{markdown(('step', 'seconds'), rows)}\n\nThe log is `{m['log']}`, to which the README leads who has none.\n"
        f"The slider's budget went from {m['slider']['before']} to {m['slider']['after']}.\n"
        f"The server answered `{decision['label']}`, after it had asked {' and '.join(decision['asked'])}.\n"
    )


def problems(m: dict[str, Any]) -> list[str]:
    """What misses its goal."""
    whole = totals(m)
    return [f"{what}: {whole[what]:.0f} s, goal {goal}" for what, goal in
            (("slider", SLIDER_GOAL_S), ("gate", GATE_GOAL_S)) if whole[what] > goal]  # fmt: skip
