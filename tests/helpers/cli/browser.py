# SPDX-License-Identifier: Apache-2.0
"""Chromium without a window, which pages are opened in and asked, over the pipe of its debugging protocol."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

BROWSER = "chromium"
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"]
ANSWER_S = 60.0
HIGH = 10  # descriptors from here on are not those that the browser wants, 3 and 4


class Browser:
    """One browser with one page, while a ``with`` block runs; its profile is in ``folder``."""

    def __init__(self, folder: Path, *flags: str) -> None:
        ours = [os.pipe() for _ in range(2)]
        (ask_r, self._ask), (self._answers, answer_w) = ours
        theirs = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH) for fd in (ask_r, answer_w)]
        actions: list[Any] = [(os.POSIX_SPAWN_DUP2, fd, k) for k, fd in enumerate(theirs, 3)]
        log = str(folder / "browser.log")
        actions += [(os.POSIX_SPAWN_OPEN, fd, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) for fd in (1, 2)]
        words = [BROWSER, *FLAGS, f"--user-data-dir={folder / 'profile'}", "--remote-debugging-pipe", *flags]
        self._pid = os.posix_spawnp(BROWSER, [*words, "about:blank"], os.environ, file_actions=actions)
        for fd in (ask_r, answer_w, *theirs):
            os.close(fd)
        self._rest, self._n, self._session = b"", 0, ""

    def __enter__(self) -> Browser:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._ask)  # without its pipe it ends
        os.kill(self._pid, signal.SIGTERM)
        os.waitpid(self._pid, 0)
        os.close(self._answers)

    def call(self, method: str, **params: Any) -> Any:
        """What the browser answers to a call of its protocol."""
        self._n += 1
        message = {"id": self._n, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._ask, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._n:
                assert "error" not in answer, answer
                return answer["result"]

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def within(self) -> Callable[[str], Any]:
        """What evaluates expressions in the document of the page's one frame, which has a process of its own."""
        page, self._session = self._session, ""
        frames: list[Any] = []
        while not frames:
            targets = self.call("Target.getTargets", filter=[{"type": "iframe"}])["targetInfos"]
            frames = [target["targetId"] for target in targets if target["type"] == "iframe"]
        inner = self.call("Target.attachToTarget", targetId=frames[0], flatten=True)["sessionId"]
        self._session = page

        def evaluate(script: str) -> Any:
            self._session = inner
            try:
                return self.evaluate(script)
            finally:
                self._session = page

        return evaluate

    def until(self, script: str, seconds: float = ANSWER_S) -> float:
        """Wait until an expression in the page is true; returns how many seconds that took."""
        began = time.monotonic()
        while not self._holds(script):
            assert time.monotonic() - began < seconds, f"not in time: {script}"
            time.sleep(0.01)
        return time.monotonic() - began

    def _holds(self, script: str) -> bool:
        try:
            return bool(self.evaluate(script))
        except AssertionError as error:
            if "navigated" not in str(error):  # the page is being left for another, which is asked next
                raise
            return False

    def open(self, url: str) -> None:
        """Go to a page, and wait until it and all that belongs to it are loaded."""
        self.call("Page.navigate", url=url)
        self.until("document.readyState == 'complete' && location.href != 'about:blank'")

    def screenshot(self, width: int, height: int) -> bytes:
        """The page in a window of this size, as a PNG."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def apart(self, *pictures: bytes) -> float:
        """How far two PNGs are apart, each of 40 by 40 squares: the mean difference of a colour, of 255."""
        urls = ["data:image/png;base64," + base64.b64encode(picture).decode() for picture in pictures]
        script = f"""Promise.all({json.dumps(urls)}.map(async url => {{
            const image = new Image(), pen = new OffscreenCanvas(40, 40).getContext("2d");
            image.src = url;
            await image.decode();
            pen.drawImage(image, 0, 0, 40, 40);
            return pen.getImageData(0, 0, 40, 40).data; }}))
            .then(([one, other]) => one.reduce((sum, x, k) => sum + Math.abs(x - other[k]), 0) / one.length)"""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return float(answer["result"]["value"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            readable, _, _ = select.select([self._answers], [], [], ANSWER_S)
            data = os.read(self._answers, 1 << 20) if readable else b""
            assert data, "the browser says nothing"
            self._rest += data
        first, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        return message
