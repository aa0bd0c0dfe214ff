"""Every pane and page at three widths of a window: nothing overflows, no word is broken, no colour comes twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import uvicorn

from presim.analysis.summarise import summarise
from presim.app.view.opened import open_result
from presim.app.view.panes import Shown
from presim.app.view.server import application
from presim.evaluation.evaluate_traces import evaluate
from presim.hardware.cluster_choice import choose_cluster
from presim.report import content, html, json
from presim.result import Held, Result
from presim.studies.saved_results.read_result import read
from presim.studies.saved_results.show_result import page
from presim.system.localhost import listening_socket
from presim.trace.job import Job
from support import fakes, layout, saved_results, workloads
from support.chromium import PROGRAM, Browser, started

pytestmark = [pytest.mark.skipif(PROGRAM is None, reason="no Chromium here")]
JOB_PANES = ("summary", "timeline", "overview", "memory", "communication", "power", "roofline", "comparison")
PAGES = {  # that verbs write themselves, beside those of `presim report --html`
    "serve": "serve llama3-8b --gpu h100-sxm --requests 60 --rate 4 -q --html {out}",
    "prefill": "prefill llama3-8b --gpu h100-sxm --sp 4 --lengths 4096,1024,512 --html {out}",
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with started(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A result of every kind, a page of each, and the pages that verbs write."""
    path = tmp_path_factory.mktemp("results")
    for kind, sample in saved_results.samples(path).items():
        (path / f"{kind}.html").write_text(page(read(sample.path)))
    for name, words in PAGES.items():
        saved_results.run(words.format(out=path / f"{name}.html").split())
    full = fakes.priced(workloads.out_of_memory())
    (path / "out-of-memory.html").write_text(html.render(summarise(full, fakes.simulate(full), fakes.DEVICE)))
    (path / "crowded.json").write_bytes(json.encode(crowded(json.read(path / "run.json"))))
    (path / "crowded.html").write_text(page(read(path / "crowded.json")))
    return path


def crowded(result: Result) -> Result:
    """The result with every category of memory, and with names that no line holds."""
    replace, long = msgspec.structs.replace, "a_name_that_no_line_holds" * 20
    categories = [Held(name.replace(" ", "_"), 1 << 30, 1) for name in content.MEMORY_CATEGORIES]
    memory = replace(
        result.memory,
        by_category=categories,
        by_module=[Held(long, 1 << 30, 1)],
        peak_allocated_bytes=len(categories) << 30,
        peak_reserved_bytes=(len(categories) + 5) << 30,
        headroom_bytes=30 << 30,
    )
    limits = [replace(limit, statement=f"{limit.statement} {long}") for limit in result.limits]
    operators = [replace(operator, name=long) for operator in result.operators]
    collectives = [replace(collective, group=long) for collective in result.collectives]
    return replace(
        result,
        job=replace(result.job, script=f"{long}.py {long}"),
        memory=memory,
        limits=limits,
        operators=operators,
        collectives=collectives,
        notes=[long, *result.notes],
    )


@pytest.fixture(scope="module")
def panes(folder: Path) -> Iterator[dict[str, tuple[str, str]]]:
    """The address of every pane of jobs and results, and its name."""
    trace = workloads.llama_8b(steps=2, layers=3)
    job = Shown("a job", evaluate(Job.of(trace), choose_cluster(gpu="h100-sxm", world_size=128)))
    results = [open_result(folder / f"{name}.json") for name in (*saved_results.kinds(), "crowded")]
    listening = listening_socket(0, "--port")
    comparison = (folder / "comparison.json").read_bytes
    config = uvicorn.Config(application([job, job], comparison, results), log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    addresses = {f"job {name}": (f"{url}#{name}", name) for name in JOB_PANES}
    for number, result in enumerate(results, 2):
        addresses |= {f"{result.label} {name}": (f"{url}?show={number}#{name}", name) for name in result.panes}
    yield addresses
    server.should_exit = True
    thread.join()


def faults(browser: Browser, pages: dict[str, tuple[str, str]]) -> dict[str, list[str]]:
    """What is wrong by page and width, where something is. ``pages``: addresses, and when each is ready."""
    found = {}
    for name, (url, ready) in pages.items():
        browser.open(url, "light", ready)
        for width in layout.WIDTHS:
            browser.resize(width)
            found[f"{name} at {width}"] = layout.faults(browser)
    return {name: sentences for name, sentences in found.items() if sentences}


@pytest.mark.long
def test_panes_fit_and_their_colours_differ(panes: dict[str, tuple[str, str]], browser: Browser) -> None:
    shown = "document.body && document.body.dataset.ready"
    pages = {name: (url, f"{shown} === {pane!r}") for name, (url, pane) in panes.items()}
    assert faults(browser, pages) == {}


@pytest.mark.long
def test_the_first_pane_fits_where_it_is_opened_in_a_small_window(
    panes: dict[str, tuple[str, str]], browser: Browser
) -> None:
    """Not only where the window became small later."""
    browser.resize(layout.WIDTHS[0])
    browser.open(panes["job summary"][0], "light", "document.body && document.body.dataset.ready === 'summary'")
    assert layout.faults(browser) == []


@pytest.mark.long
def test_pages_fit_and_their_colours_differ(folder: Path, browser: Browser) -> None:
    pages = {path.stem: (path.as_uri(), "document.readyState === 'complete'") for path in sorted(folder.glob("*.html"))}
    assert faults(browser, pages) == {}


def test_the_page_of_a_job_fits(browser: Browser, tmp_path: Path) -> None:
    """The job that runs out of memory, and with names that no line holds."""
    full = fakes.priced(workloads.out_of_memory())
    result = summarise(full, fakes.simulate(full), fakes.DEVICE)
    pages = {}
    for name, shown in (("plain", result), ("crowded", crowded(result))):
        path = tmp_path / f"{name}.html"
        path.write_text(html.render(shown))
        pages[name] = (path.as_uri(), "document.readyState === 'complete'")
    assert faults(browser, pages) == {}


BROKEN = {
    "breaks words|lines of": "<table style='width:60px'><td style='overflow-wrap:anywhere'>communication"
    "<td style='white-space:nowrap'>a long sentence that is never wrapped at all</table>",
    "holds 900 in": "<div style='width:100px'><div style='width:900px'>wide</div></div>",
    "have one colour": "<p class=legend><span><i style='background:red'>a</i>free</span>"
    "<span><i style='background:red'>b</i>context</span></p>",
    "the page is 3000 wide": "<div style='width:3000px'>wide</div>",
    "the console says": "<script>console.error('lost')</script>",
}


@pytest.mark.parametrize("words", BROKEN)
def test_faults_are_seen(browser: Browser, tmp_path: Path, words: str) -> None:
    """The check itself: pages that are broken on purpose."""
    path = tmp_path / "broken.html"
    path.write_text(f"<!doctype html><html><body style='margin:0'>{BROKEN[words]}</body></html>")
    browser.resize(700)
    browser.open(path.as_uri(), "light", "document.readyState === 'complete'")
    found = layout.faults(browser)
    assert [line for line in found if any(word in line for word in words.split("|"))], found
