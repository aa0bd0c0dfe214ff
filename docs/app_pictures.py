"""Draws the pictures of `presim app` in the documentation: a result and a what-if, as they come out today.

Run ``python docs/app_pictures.py`` after a change of the page. It needs Chromium.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from pathlib import Path

import uvicorn

from presim.app.server import application
from presim.app.state import AppState
from presim.cli import main as command_line
from presim.system.localhost import listening_socket

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent / "tests"))

from support.chromium import Browser, started  # noqa: E402  # a helper of the tests

WORDS = "compose llama3-8b --gpu h100-sxm --nodes 16 --gpus-per-node 8 --seq 4096 --json llama3-8b.json"
DEPLOY = "deploy llama3-8b --gpu h100-sxm --max-gpus 1 --weights bf16 --no-disaggregation --slo ttft:500 --slo tpot:50"
DEPLOY = f"{DEPLOY} --json deploy.json"
SIZE = 1200, 900  # pixels
SHOWN = "!!document.querySelector('[data-ready={}]')"


def main() -> None:
    """Predicts a plan in a temporary project and takes the pictures."""
    with tempfile.TemporaryDirectory() as folder:
        state, listening = AppState(Path(folder)), listening_socket(0, "--port")
        os.chdir(folder)
        for words in (WORDS, DEPLOY):
            state.project.write_command(Path(words.split()[-1]).stem, words.split())
            command_line.run([*words.split(), "-q"])
        server = uvicorn.Server(uvicorn.Config(application(state, "t"), log_level="warning", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            # Processes of Chromium may still write into the profile while it is deleted.
            with (
                tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
                started(Path(profile)) as browser,
            ):
                browser.resize(*SIZE)
                take(browser, f"http://127.0.0.1:{listening.getsockname()[1]}/?token=t#/")
        finally:  # else a failure would wait for the server for ever
            server.should_exit = True
            thread.join()
            state.close()
            os.chdir(DOCS)  # the folder is deleted


def take(browser: Browser, address: str) -> None:
    """The result's first pane, two deployments compared, and the what-if after its slider of bandwidth has moved."""
    browser.open(f"{address}result/llama3-8b", "light", SHOWN.format("summary"))
    browser.picture().quantize(200).save(DOCS / "pictures" / "app-result.png", optimize=True)
    browser.open(f"{address}result/deploy", "light", SHOWN.format("deployments"))
    browser.value("[...document.querySelectorAll('#pane tbody tr input')].slice(0, 2).forEach(box => box.click())")
    browser.wait("!!document.querySelector('[data-chosen]')")
    browser.value("document.getElementById('pane').scrollIntoView()")
    browser.picture().quantize(200).save(DOCS / "pictures" / "app-deployments.png", optimize=True)
    browser.open(f"{address}change/llama3-8b", "light", SHOWN.format("change"))
    browser.value("document.getElementById('change-bandwidth').focus()")
    for _ in range(4):
        browser.press("ArrowLeft")
    browser.wait("document.querySelector('.copied pre')?.textContent.includes('inter=0.5')")
    browser.wait("document.querySelector('[data-ready=change] [role=status]')?.textContent.startsWith('Answered')")
    browser.value("document.activeElement.blur()")
    browser.picture().quantize(200).save(DOCS / "pictures" / "app-what-if.png", optimize=True)


if __name__ == "__main__":
    main()
