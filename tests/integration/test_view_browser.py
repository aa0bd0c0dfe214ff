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
from presim.view.opened import Opened
from presim.view.panes import Shown
from presim.view.server import application, bound
from support import workloads

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
LATENCIES = ("ttft", "tpot", "itl", "e2el")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")]


SERVED = {
    "deployment": {"model": "m", "plan": "TP1", "gpus": 1, "gpu": "h100-sxm"},
    "workload": {"name": "10 requests"},
    "figures": {f"{kind}_{name}_ms": 41.5 for kind in ("mean", "median", "p90", "p99") for name in LATENCIES},
    "intervals_80": {"mean_ttft_ms": [30.0, 50.0]},
    "memory": {f"{name}_GiB": 1.0 for name in ("weights", "activations", "others", "kv_cache")},
    "engine": {"steps": 10},
    "overloaded": False,
    "notes": [],
    "not_modelled": ["<b>not markup</b>"],
}
_FIGURES = {"step_time_s": 0.39455, "memory_bytes": 1 << 34, "headroom_bytes": 1 << 33, "mfu": 0.3, "fits": True}
_TRIAL = {"number": 0, "point": {"tensor": 2}, "figures": _FIGURES}
SEARCHED = {
    "subject": "m",
    "strategy": "exhaustive",
    "complete": True,
    "varied": ["tensor"],
    "fates": {"priced": 1},
    "best": [_TRIAL],
    "front": [0],
    "importance": {"tensor": 1.0},
    "notes": [],
    "points": [_TRIAL],
}


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, Shown]]:
    trace = workloads.llama_8b(steps=2, layers=3)
    shown = Shown("a job", evaluate(trace, choose_cluster(gpu="h100-sxm", world_size=128)))
    listening = bound(0)
    results = [Opened("s.json", "serving", SERVED), Opened("q.json", "search", SEARCHED)]
    config = uvicorn.Config(application([shown], results=results), log_level="warning", lifespan="off")
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


@pytest.mark.parametrize("pane", ["summary", "timeline", "overview", "memory", "communication", "power", "roofline"])
def test_a_pane_is_drawn_without_errors(address: tuple[str, Shown], pane: str, tmp_path: Path) -> None:
    url, shown = address
    page, said = drawn(f"{url}#{pane}", tmp_path)
    assert said == ""
    assert f'data-ready="{pane}"' in page
    assert re.search(r'<p id="error" role="alert" hidden="">', page)
    if pane == "summary":
        assert shown.evaluation.result.step_time_s is not None
        assert seconds(shown.evaluation.result.step_time_s) in page


def test_results_of_search_and_serve_are_drawn(address: tuple[str, Shown], tmp_path: Path) -> None:
    """Their panes show the numbers of the JSON."""
    url, _ = address
    for place, (pane, number) in enumerate({"serving": "41.5", "search": "394.55 ms"}.items(), 1):
        page, said = drawn(f"{url}?show={place}", tmp_path)
        assert said == ""
        assert f'data-ready="{pane}"' in page
        assert number in page
