"""The page of `presim view` in a real browser: panes are drawn, show the result's numbers, and log no errors."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from presim.hardware.choose import choose_cluster
from presim.pipeline import evaluate
from presim.units import seconds
from presim.view.panes import Shown
from presim.view.server import application, bound
from support import workloads

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")]


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, Shown]]:
    trace = workloads.llama_8b(steps=2, layers=3)
    shown = Shown("a job", evaluate(trace, choose_cluster(gpu="h100-sxm", world_size=128)))
    listening = bound(0)
    config = uvicorn.Config(application([shown]), log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/", shown
    server.should_exit = True
    thread.join()


def drawn(url: str, folder: Path) -> tuple[str, str]:
    """The document after its scripts have run, and what the console said."""
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}"]
    command += [
        "--enable-logging=stderr",
        "--v=0",
        "--virtual-time-budget=20000",
        "--window-size=1200,900",
        "--dump-dom",
    ]
    done = subprocess.run([*command, url], capture_output=True, text=True, timeout=120, check=True)
    said = "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)
    return done.stdout, said


@pytest.mark.parametrize("pane", ["summary", "timeline", "memory", "communication", "roofline"])
def test_a_pane_is_drawn_without_errors(address: tuple[str, Shown], pane: str, tmp_path: Path) -> None:
    url, shown = address
    page, said = drawn(f"{url}#{pane}", tmp_path)
    assert said == ""
    assert f'data-ready="{pane}"' in page
    assert re.search(r'<p id="error" role="alert" hidden="">', page)
    if pane == "summary":
        assert shown.evaluation.result.step_time_s is not None
        assert seconds(shown.evaluation.result.step_time_s) in page
