"""The page of `presim view` in a real browser: panes are drawn, show the result's numbers, and log no errors.

Pictures are compared with kept ones (`support.pictures`); ``KEEP_PICTURES=1`` keeps the present ones.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
import uvicorn

from presim.app.view.opened import Opened
from presim.app.view.panes import Shown
from presim.app.view.server import application
from presim.evaluation.evaluate_traces import evaluate
from presim.evaluation.figures import link_loads, stage_passes
from presim.hardware.cluster_choice import choose_cluster
from presim.system.localhost import listening_socket
from presim.trace.job import Job
from presim.units import seconds
from support import pictures, workloads
from support.chromium import PROGRAM, Browser, started
from support.stages import two_stages

PANES = ("summary", "timeline", "overview", "memory", "communication", "network", "pipeline", "power", "roofline")
LATENCIES = ("ttft", "tpot", "itl", "e2el")
pytestmark = [pytest.mark.skipif(PROGRAM is None, reason="no Chromium here")]


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
    shown = Shown("a job", evaluate(Job.of(trace), choose_cluster(gpu="h100-sxm", world_size=128)))
    listening = listening_socket(0, "--port")
    results = [Opened("s.json", {"serving": lambda: SERVED}), Opened("q.json", {"search": lambda: SEARCHED})]
    config = uvicorn.Config(application([shown, two_stages()], results=results), log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/", shown
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with started(tmp_path_factory.mktemp("chromium")) as found:
        yield found


def ready(pane: str) -> str:
    return f"document.body && document.body.dataset.ready === {pane!r}"


def test_the_pipeline_has_a_block_for_every_pass(address: tuple[str, Shown], browser: Browser) -> None:
    """At its share of the step, and with its number."""
    browser.open(f"{address[0]}?show=1#pipeline", "light", ready("pipeline"))
    data = stage_passes(two_stages().evaluation)
    span = data.to_ns - data.from_ns
    blocks = browser.value(
        "[...document.querySelectorAll('.passes span')].map(one => [one.style.left, one.style.width, one.title])"
    )
    passes = [entry for row in data.ranks for entry in row.passes]
    assert len(blocks) == len(passes) > 0
    for (left, width, title), (start, end, kind, number) in zip(blocks, passes):
        assert float(left.rstrip("%")) == pytest.approx(100 * (start - data.from_ns) / span, abs=0.01)
        assert float(width.rstrip("%")) == pytest.approx(100 * (end - start) / span, abs=0.01)
        assert title.startswith(f"{data.kinds[kind]} {number}: ")


def test_links_have_the_load_of_the_moment(address: tuple[str, Shown], browser: Browser) -> None:
    """The title of each link says its load, also after the slider has moved."""
    browser.open(f"{address[0]}#network", "light", ready("network"))
    links = link_loads(address[1].evaluation).links
    titles = "[...document.querySelectorAll('.network path title')].map(title => title.textContent)"
    for key in ("Home", "End"):
        browser.value("document.getElementById('moment').focus()")
        browser.press(key)
        moment = int(browser.value("document.getElementById('moment').value"))
        said = [int(title.rpartition(": ")[2].split()[0]) for title in browser.value(titles)]
        assert said == [loads[moment] for *_, loads in links]


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.long)])
@pytest.mark.parametrize("pane", PANES)
def test_a_pane_is_drawn_without_errors_and_looks_as_before(
    address: tuple[str, Shown], browser: Browser, pane: str, theme: Literal["light", "dark"], tmp_path: Path
) -> None:
    url, shown = address
    browser.open(f"{url}#{pane}", theme, ready(pane))
    assert browser.console == []
    assert browser.value("document.getElementById('error').hidden")
    if pane == "summary":
        assert shown.evaluation.result.step_time_s is not None
        assert seconds(shown.evaluation.result.step_time_s) in browser.value("document.body.innerText")
    picture = browser.picture()
    if os.environ.get("KEEP_PICTURES"):
        pictures.keep(picture, f"{pane}-{theme}")
    pictures.check(picture, f"{pane}-{theme}", tmp_path)


def test_a_pane_that_is_not_drawn_is_seen(address: tuple[str, Shown], browser: Browser, tmp_path: Path) -> None:
    """The comparison of pictures notices an empty pane, and another theme."""
    browser.open(f"{address[0]}#summary", "light", ready("summary"))
    browser.value("document.getElementById('summary').replaceChildren()")
    picture = browser.picture()
    for name in ("summary-light", "summary-dark"):
        with pytest.raises(AssertionError, match="from the kept picture"):
            pictures.check(picture, name, tmp_path)
        assert (tmp_path / f"{name}.png").exists()


def test_the_page_is_used_by_the_keyboard_alone(address: tuple[str, Shown], browser: Browser) -> None:
    """Tabs by arrows; the timeline is reached by Tab, zoomed, and its boxes are read."""
    browser.open(address[0], "light", ready("summary"))
    browser.value("document.querySelector('[role=tab][aria-selected=true]').focus()")
    browser.press("ArrowRight")
    browser.wait(ready("timeline"))
    assert browser.value("document.activeElement.dataset.pane") == "timeline"
    reached = []
    while "canvas" not in reached and len(reached) < 8:
        browser.press("Tab")
        reached.append(browser.value("document.activeElement.id"))
    assert reached == ["ranks", "whole", "find", "arrows", "canvas"]
    assert browser.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    while not browser.value("picture.hits.length"):
        before = browser.value("picture.asked")
        browser.press("w")
        browser.wait(f"picture.asked > {before} && !picture.loading && !picture.frameNumber")
    browser.press("n")
    browser.wait("picture.work && !document.getElementById('details').hidden")
    assert re.search(r"\d (ns|us|ms|s)$", browser.value("document.getElementById('under').textContent"))


def test_work_is_found_in_the_timeline(address: tuple[str, Shown], browser: Browser) -> None:
    """Enter goes to the next work with a name, framed, and says how many there are."""
    browser.open(f"{address[0]}#timeline", "light", ready("timeline"))
    browser.value("document.getElementById('find').value = 'all_gather'; document.getElementById('find').focus()")
    browser.press("Enter")
    browser.wait("document.getElementById('found').textContent.includes('in all')")
    first = browser.value("picture.found.from")
    browser.press("Enter")
    browser.wait(f"picture.found.from > {first}")
    assert browser.value("picture.view[0] < picture.found.from && picture.found.to < picture.view[1]")
    assert browser.console == []


DETAILS = "document.getElementById('details').innerText"


def test_work_is_selected_by_a_click_and_a_range_by_dragging(address: tuple[str, Shown], browser: Browser) -> None:
    """The work says its shape; the range its sums, which are those of the server; Escape ends both."""
    browser.open(f"{address[0]}#timeline", "light", ready("timeline"))
    browser.value("picture.focus(picture.data.span[0], picture.data.span[0] + 2e6)")
    browser.wait("!picture.loading && !picture.frameNumber && picture.hits.some(hit => hit.name.includes('mm'))")
    place = "(() => { const box = picture.canvas.getBoundingClientRect(), hit = picture.hits.find(hit =>"
    place += " hit.name.includes('mm') && hit.w > 2); return [box.x + hit.x + 1, box.y + hit.y + 5]; })()"
    point = tuple(browser.value(place))
    browser.drag(point, point)
    browser.wait("!!picture.work && !document.getElementById('details').hidden")
    assert " x " in browser.value(DETAILS).partition("shape")[2].splitlines()[0]
    assert browser.value("picture.work.from") == browser.value("picture.hits.find(hit => hit.name.includes('mm')).from")
    left, top = browser.value("(box => [box.x, box.y])(picture.canvas.getBoundingClientRect())")
    browser.drag((left + 300, top + 30), (left + 600, top + 30))
    browser.wait(
        "!!picture.range && !picture.work && document.querySelector('#details h2').textContent.includes('selec')"
    )
    first, last = browser.value("picture.range")
    assert (
        browser.value("document.querySelector('#details h2').textContent").split()[0] == f"{(last - first) / 1e3:.1f}"
    )
    browser.value("picture.canvas.focus()")
    browser.press("Escape")
    assert browser.value("document.getElementById('details').hidden")
    assert browser.console == []


def test_brackets_follow_the_arrows_of_work(address: tuple[str, Shown], browser: Browser) -> None:
    """To what waited for it and back; all arrows of a window are drawn where they are not too many."""
    shown = address[1]
    source, target = (side[0].tolist() for side in (shown.arrows.sources, shown.arrows.targets))
    browser.open(f"{address[0]}#timeline", "light", ready("timeline"))
    browser.value(f"picture.select({source[0]}, {source[1]}, {{ index: {source[2]} }})")
    browser.wait("!!picture.work && !picture.loading")
    browser.value("picture.canvas.focus()")
    browser.press("]")
    browser.wait(f"picture.work.track === {target[1]} && picture.work.index === {target[2]}")
    browser.press("[")
    browser.wait(f"picture.work.track === {source[1]} && picture.work.index === {source[2]}")
    browser.press("f")
    browser.wait("!picture.loading")
    browser.value("document.getElementById('arrows').click()")
    browser.wait("picture.arrows.length > 0")
    assert "in this window" in browser.value("document.getElementById('under').textContent")


def test_a_click_on_memory_lists_the_blocks_of_that_moment(address: tuple[str, Shown], browser: Browser) -> None:
    """It begins with the peak; the keyboard has a slider."""
    browser.open(f"{address[0]}#memory", "light", ready("memory"))
    text = "[...document.querySelectorAll('#memory p')].map(line => line.textContent)"
    text += ".find(line => / into the step /.test(line))"
    browser.wait(f"!!{text} && !!document.querySelector('#memory canvas[role=img]')")
    peak = browser.value(text)
    assert f"{address[1].evaluation.result.memory.peak_allocated_bytes / 2**30:.2f} GiB" in peak
    browser.value("document.querySelector('#memory canvas[role=img]').scrollIntoView()")
    box = "document.querySelector('#memory canvas[role=img]').getBoundingClientRect()"
    left, top = browser.value(f"(box => [box.x, box.y])({box})")
    browser.drag((left + 90, top + 60), (left + 90, top + 60))
    browser.wait(f"{text} !== {peak!r}")
    browser.value("document.querySelector('#memory input[type=range]').focus()")
    clicked = browser.value(text)
    browser.press("ArrowRight")
    browser.wait(f"{text} !== {clicked!r}")
    assert browser.console == []


def test_everything_has_a_name_for_a_screen_reader(address: tuple[str, Shown], browser: Browser) -> None:
    """Controls, pictures and headings of tables."""
    nameless = "[...document.querySelectorAll('button, select, canvas, [role=img]')].filter(one => one.offsetParent"
    nameless += " && !one.textContent.trim() && !one.getAttribute('aria-label') && !one.labels?.length"
    nameless += " && !one.closest('[aria-label][role=img]')).map(one => one.outerHTML.slice(0, 80))"
    for pane in PANES:
        browser.open(f"{address[0]}#{pane}", "light", ready(pane))
        assert browser.value(nameless) == []
        assert browser.value(f"!!document.querySelector('#{pane} h2, #{pane} canvas, #{pane} table')")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_stands_out_from_its_ground(
    address: tuple[str, Shown], browser: Browser, theme: Literal["light", "dark"]
) -> None:
    """By 4.5 to 1, as the accessibility guidelines of the web (WCAG AA) ask for."""
    browser.open(address[0], theme, ready("summary"))
    names = ("paper", "card", "ink", "dim", "accent", "bad")
    style = "getComputedStyle(document.documentElement).getPropertyValue"
    colours = {name: luminance(browser.value(f"{style}('--{name}').trim()")) for name in names}
    for ground in ("paper", "card"):
        for text in names[2:]:
            light, dark = sorted((colours[ground], colours[text]), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (ground, text)


def luminance(colour: str) -> float:
    """Relative luminance, as WCAG defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_results_of_search_and_serve_are_drawn(address: tuple[str, Shown], browser: Browser, tmp_path: Path) -> None:
    """Their panes show the numbers of the JSON."""
    url, _ = address
    for place, (pane, number) in enumerate({"serving": "41.5", "search": "394.55 ms"}.items(), 2):
        browser.open(f"{url}?show={place}", "light", ready(pane))
        assert browser.console == []
        assert number in browser.value("document.body.innerText")
