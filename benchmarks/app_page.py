"""How fast the browser's pages come: the first picture of `presim app`, and a timeline with a million pieces of work.

    python benchmarks/app_page.py

It needs Chromium. The app is a process of its own with an empty project. Every opening is that of a new page; the first
one, in which the browser starts a process, is not counted. The timeline is zoomed by a key a frame, then moved.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import uvicorn

from presim.app.view.panes import Shown
from presim.app.view.server import application
from presim.cli.script import sentences
from presim.errors import InputError
from presim.evaluation.evaluate_traces import evaluate
from presim.hardware.cluster_choice import choose_cluster
from presim.system.localhost import listening_socket
from presim.trace.job import Job
from presim.trace.schema import Kind

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "app_page.md"
sys.path.insert(0, str(ROOT / "tests"))

from support import workloads  # noqa: E402  # helpers of the tests
from support.chromium import PROGRAM, Browser, started  # noqa: E402

HEAD = """# The browser's pages

Written by `benchmarks/app_page.py` on {date} in headless Chromium without a GPU, on {cores} cores with a load of
{load:.1f}. The aims are a first picture within 300 ms and 30 pictures a second.

| | |
|---|---|
"""
FRAMES = 150
WORK = 1_000_000
ZOOM = """window.frames = null; (async () => {
  const moments = [];
  for (let frame = 0; frame < FRAMES; frame++) {
    moments.push(await new Promise(requestAnimationFrame));
    if (frame < 100) picture.zoom(.93, 700); else picture.pan(.02);
  }
  await picture.loading; window.frames = moments;
})()""".replace("FRAMES", str(FRAMES))


def main() -> None:
    """Writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--opens", type=int, default=9, metavar="N", help="how often the page is opened (default 9)")
    opens = parser.parse_args().opens
    if opens < 1:
        parser.error(f"argument --opens: {opens} is no number of times; give 1 or more")
    if PROGRAM is None:
        raise InputError("there is no Chromium here: install one, for example by apt-get install chromium")
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as profile, started(Path(profile)) as browser:
        browser.resize(1280)
        rows = [*first_pictures(browser, opens), *timeline(browser)]
    date, cores = datetime.datetime.now(tz=datetime.UTC).date(), len(os.sched_getaffinity(0))
    page = HEAD.format(date=date, cores=cores, load=load) + "".join(f"| {name} | {figure} |\n" for name, figure in rows)
    RESULT.write_text(page)
    print(page)


def first_pictures(browser: Browser, opens: int) -> list[tuple[str, str]]:
    """When the app's page is drawn first, and when its project is there, after the address is opened."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "presim", "app", folder]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        address = re.search(r"http://\S+", process.stdout.readline())
        assert address is not None
        drawn, ready = [], []
        for _ in range(opens + 1):
            browser.open(address[0], "light", "!!document.querySelector('[data-ready=project]')")
            ready.append(browser.value("performance.now()"))
            browser.wait("performance.getEntriesByName('first-contentful-paint').length > 0")
            drawn.append(browser.value("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
        process.terminate()
        process.wait()
    named = (("First picture of `presim app`", drawn[1:]), ("Its project listed", ready[1:]))
    return [(name, f"{statistics.median(ms):.0f} ms, at most {max(ms):.0f} ms") for name, ms in named]


def timeline(browser: Browser) -> list[tuple[str, str]]:
    """Pictures a second while a timeline is zoomed from a whole run to single kernels, and moved."""
    step = int(workloads.llama_8b(steps=1, layers=32).mask(Kind.WORK, Kind.COLLECTIVE).sum())
    trace = workloads.llama_8b(steps=-(-WORK // step), layers=32)
    shown = Shown("a million", evaluate(Job.of(trace), choose_cluster(gpu="h100-sxm", world_size=128)))
    count = sum(track.start.size for track in shown.tracks[0])
    end_ns = max(int(track.end[-1]) for track in shown.tracks[0])
    listening = listening_socket(0, "--port")
    server = uvicorn.Server(uvicorn.Config(application([shown]), log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    address = f"http://127.0.0.1:{listening.getsockname()[1]}/#timeline"
    browser.open(address, "light", "!!document.body && document.body.dataset.ready === 'timeline'")
    browser.value(f"picture.focus(0, {end_ns})")
    browser.wait("!picture.loading")
    browser.value(ZOOM)
    browser.wait("!!window.frames")
    moments = browser.value("window.frames")
    server.should_exit = True
    thread.join()
    gaps = sorted(after - before for before, after in itertools.pairwise(moments))
    rate = 1000 * len(gaps) / sum(gaps)
    figure = f"{rate:.0f} a second; nine of ten within {gaps[len(gaps) * 9 // 10]:.0f} ms"
    return [(f"Pictures of a timeline with {count:,} pieces of work", figure)]


if __name__ == "__main__":
    with sentences():
        main()
