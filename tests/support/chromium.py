"""A headless Chromium, driven over its pipe of the DevTools protocol: pages, keys, pictures, what the console says."""

from __future__ import annotations

import base64
import contextlib
import io
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from PIL import Image

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_KEYS = {"ArrowRight": 39, "ArrowLeft": 37, "Tab": 9, "Home": 36, "End": 35, "Enter": 13}


class Browser:
    """One page; questions are answered in their order."""

    def __init__(self, reading: int, writing: int) -> None:
        self._answers, self._writing = os.fdopen(reading, "rb"), writing
        self._numbers = itertools.count(1)
        self._left = b""
        self._session = ""
        self.console: list[str] = []  # warnings, errors and exceptions since the page was opened
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")

    def open(self, url: str, theme: Literal["light", "dark"] = "light", ready: str = "true") -> None:
        """Show a page and wait until an expression of it is true."""
        self._ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        self._ask("Page.navigate", url="about:blank")  # the same page at another anchor would not be loaded anew
        self.console = []
        self._ask("Page.navigate", url=url)
        self.wait(ready)

    def wait(self, expression: str) -> None:
        """Until it is true; Chromium itself waits, frame by frame."""
        loop = f"new Promise(done => {{ const look = () => ({expression}) ? done(1) : setTimeout(look, 20); look(); }})"
        for _ in range(20):  # a page that is being replaced forgets its promises
            with contextlib.suppress(RuntimeError):
                self._ask("Runtime.evaluate", expression=loop, awaitPromise=True)
                if self.value(expression):
                    return
        raise AssertionError(f"never true: {expression}; the console: {self.console}")

    def value(self, expression: str) -> Any:
        """What an expression is worth."""
        found = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        return found["result"].get("value")

    def press(self, key: str) -> None:
        """A key, as a person presses it."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        code = {"windowsVirtualKeyCode": _KEYS[key]} if key in _KEYS else {}
        self._ask("Input.dispatchKeyEvent", type="keyDown", key=key, **text, **code)
        self._ask("Input.dispatchKeyEvent", type="keyUp", key=key, **code)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Press the mouse at a point of the window, move it to another and let go; a click if they are the same."""
        button = {"button": "left", "clickCount": 1}
        self._ask("Input.dispatchMouseEvent", type="mousePressed", x=start[0], y=start[1], **button)
        if end != start:
            self._ask("Input.dispatchMouseEvent", type="mouseMoved", x=end[0], y=end[1], button="left")
        self._ask("Input.dispatchMouseEvent", type="mouseReleased", x=end[0], y=end[1], **button)

    def resize(self, width: int, height: int = 900) -> None:
        """Give the page another size, in CSS pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._ask("Emulation.setDeviceMetricsOverride", **size)
        frames = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"
        self._ask("Runtime.evaluate", expression=frames, awaitPromise=True)  # what observes sizes has drawn

    def picture(self) -> Image.Image:
        """What is seen."""
        data = base64.b64decode(self._ask("Page.captureScreenshot", format="png")["data"])
        return Image.open(io.BytesIO(data)).convert("RGB")

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        session = {"sessionId": self._session} if self._session else {}
        message = {"id": number, "method": method, "params": parameters, **session}
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result
            self._noted(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            part = self._answers.raw.read(1 << 16)  # type: ignore[attr-defined]  # of a buffered reader
            if not part:
                raise RuntimeError("Chromium ended")
            self._left += part
        text, _, self._left = self._left.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        return found

    def _noted(self, event: dict[str, Any]) -> None:
        parameters = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.console.append(json.dumps(parameters["exceptionDetails"])[:500])
        if event.get("method") == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.console.append(json.dumps(parameters["args"])[:500])
        if event.get("method") == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.console.append(parameters["entry"]["text"])


@contextlib.contextmanager
def started(profile: Path, size: str = "1200,900") -> Iterator[Browser]:
    """A browser with a profile of its own; it ends with the block."""
    assert PROGRAM is not None
    asking, writing = os.pipe()
    reading, answering = os.pipe()
    command = (
        f'exec 3<&{asking} 4>&{answering}; exec "$0" --headless --no-sandbox --disable-gpu --hide-scrollbars '
        f'--force-device-scale-factor=1 --remote-debugging-pipe --window-size={size} "--user-data-dir=$1"'
    )
    process = subprocess.Popen(
        ["bash", "-c", command, PROGRAM, str(profile)],
        pass_fds=(asking, answering),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(asking)
    os.close(answering)
    try:
        yield Browser(reading, writing)
    finally:
        os.close(writing)
        process.terminate()
        process.wait()
