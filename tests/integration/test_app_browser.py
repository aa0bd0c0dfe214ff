"""The page of `presim app` in a real browser: from an empty project to results, at three widths, by keyboard.

axe-core is a development package of the page: `make app` installs it, and its test is skipped without.
"""

from __future__ import annotations

import csv
import io
import itertools
import shlex
import shutil
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
import uvicorn

from presim.app.guard import Tokens
from presim.app.questions import QUESTIONS
from presim.app.server import application
from presim.app.state import AppState
from presim.cli import main
from presim.report import json
from presim.system.files import decode_json
from presim.system.localhost import listening_socket
from presim.units import seconds
from support import layout
from support.chromium import PROGRAM, Browser, started
from support.long_cases import marked

pytestmark = [
    pytest.mark.torch_cuda,  # the graph of a composed model
    pytest.mark.skipif(PROGRAM is None, reason="no Chromium here"),
]
TOKEN = "the-token"
AXE = Path(__file__).parents[2] / "src/presim/app/web/node_modules/axe-core/axe.min.js"
RESULTS = {  # name: words of its command
    "compose-1": "compose llama3-8b --gpu h100-sxm --nodes 2 --gpus-per-node 8 --seq 4096",
    "compose-2": "compose llama3-8b --gpu b200 --nodes 2 --gpus-per-node 8 --seq 4096",
    "serve-1": "serve llama3-8b --gpu h100-sxm --rate 4 --requests 60 --slo ttft:500",
    "search-1": "search llama3-8b --gpu h100-sxm --gpus-per-node 4 --seq 1024 --mbs 1 --tp 1 --sp false --pp 1 --vpp 1"
    " --cp 1 --ep 1 --shard 0 --reshard true,false --recompute none --dp-style fsdp2,zero1 --jobs 1",
    "deploy-1": "deploy llama3-8b --gpu h100-sxm --max-gpus 1 --weights bf16 --no-disaggregation --slo tpot:50",
    "training-1": "training compose-1.json --tokens 1e12 --runs 3",
    "rl-1": "rl qwen3-8b --gpu h100-sxm --nodes 1 --prompts 8 --samples 4 --response 256",
}
PAGES = {  # address: what is there when it is drawn
    "": "project",
    "ask/compose": "ask",
    "ask/serve": "ask",
    "ask/import": "ask",
    "ask/rl": "ask",
    "result/compose-1/summary": "summary",
    "result/compose-1/memory": "memory",
    "result/compose-1/communication": "communication",
    "result/compose-1/report": "report",
    "result/serve-1/serving": "serving",
    "result/search-1/search": "search",
    "result/deploy-1/deployments": "deployments",
    "result/rl-1/pools": "pools",
    "result/rl-1/report": "report",
    "result/training-1/report": "report",
    "change/compose-1": "change",
    "compare/compose-1,compose-2": "compare",
    "compare/compose-1,serve-1,training-1": "compare",
}


USUAL_PAGES = ("", "ask/serve", "result/compose-1/summary", "result/rl-1/pools", "compare/compose-1,compose-2")


def served(state: AppState) -> Iterator[str]:
    listening = listening_socket(0, "--port")
    server = uvicorn.Server(
        uvicorn.Config(application(state, TOKEN), log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/?token={TOKEN}#/"
    server.should_exit = True
    thread.join()
    state.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results as the command line writes them, beside their commands."""
    path = tmp_path_factory.mktemp("project")
    state = AppState(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        for name, words in RESULTS.items():
            parts = [*words.split(), "--json", f"{name}.json"]
            state.project.write_command(name, parts)
            assert main.run(parts) == 0, words
    return path


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    yield from served(AppState(folder))


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[str]:
    yield from served(AppState(tmp_path))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with started(tmp_path_factory.mktemp("chromium")) as chromium:
        yield chromium


def ready(name: str) -> str:
    return f"!!document.querySelector('[data-ready={name}]')"


def set_field(browser: Browser, identifier: str, value: str) -> None:
    """Give a field a value, as a person who types or chooses it."""
    browser.value(
        f"""(() => {{
          const field = document.getElementById({identifier!r}), kind = Object.getPrototypeOf(field);
          Object.getOwnPropertyDescriptor(kind, "value").set.call(field, {value!r});
          field.dispatchEvent(new Event(field.tagName === "SELECT" ? "change" : "input", {{ bubbles: true }}));
        }})()"""
    )


@pytest.mark.parametrize("page", marked(PAGES, [page for page in PAGES if page not in USUAL_PAGES]))
def test_a_page_fits_every_window_and_logs_nothing(address: str, browser: Browser, page: str) -> None:
    for width in layout.WIDTHS:
        browser.resize(width)
        browser.open(f"{address}{page}", "light", ready(PAGES[page]))
        browser.resize(width)
        assert layout.faults(browser) == []


@pytest.mark.long
@pytest.mark.skipif(not AXE.is_file(), reason="axe-core is installed by `make app`")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_violation(address: str, browser: Browser, theme: Literal["light", "dark"]) -> None:
    """Contrast, names, roles and structure by WCAG 2.2 AA, of every page."""
    axe = AXE.read_text()
    run = "axe.run(document, {resultTypes: ['violations']}).then(found => { window.found = found.violations.map(one =>"
    run += " `${one.id}: ${one.nodes[0].html.slice(0, 150)} ${one.nodes[0].failureSummary}`); })"
    for page, name in PAGES.items():
        browser.resize(1280)
        browser.open(f"{address}{page}", theme, ready(name))
        browser.value(f"window.found = null; {axe}; {run}; 0")
        browser.wait("window.found !== null")
        assert browser.value("window.found") == [], page


def test_figures_are_those_of_the_files(address: str, browser: Browser, folder: Path) -> None:
    result = json.read(folder / "compose-1.json")
    assert result.step_time_s is not None
    browser.open(f"{address}result/compose-1", "light", ready("summary"))
    assert browser.value("document.querySelector('[data-figure=step] .value').textContent") == seconds(
        result.step_time_s
    )
    facts = browser.value("document.querySelector('.facts').textContent")
    assert result.job.gpu_name in facts
    assert browser.value("document.querySelector('.copied pre').textContent") == (
        f"presim {RESULTS['compose-1']} --json compose-1.json"
    )


def test_the_report_has_the_drawings_of_the_timelines_and_names_its_command(address: str) -> None:
    """A composed result is composed again for them; that of a load has its run over time in itself."""
    command = {name: f"<code>presim {words} --json {name}.json</code>" for name, words in RESULTS.items()}
    for name, drawings in (
        ("compose-1", ("Roofline", "Network", "Load of links")),
        ("serve-1", ("Requests over time",)),
    ):
        url = f"{address.partition('/?')[0]}/api/results/{name}/page?token={TOKEN}"
        with urllib.request.urlopen(url) as answer:
            page = answer.read().decode()
        assert all(f"<h2>{drawing}" in page for drawing in drawings)
        assert command[name] in page


def test_a_comparison_has_the_difference_of_the_files(address: str, browser: Browser, folder: Path) -> None:
    first, second = (json.read(folder / f"compose-{number}.json").step_time_s for number in (1, 2))
    assert first is not None
    assert second is not None
    browser.open(f"{address}compare/compose-1,compose-2", "light", ready("compare"))
    text = browser.value("document.querySelector('tr[data-figure=step] .difference').textContent")
    assert text == f"\u2212{(1 - second / first) * 100:.0f} % better"


def test_a_waterfall_leads_from_one_step_time_to_the_other(address: str, browser: Browser, folder: Path) -> None:
    """The bars between the totals begin where the one before ends."""
    first, second = (json.read(folder / f"compose-{number}.json").step_time_s for number in (1, 2))
    assert first is not None
    assert second is not None
    browser.resize(1280)
    browser.open(f"{address}compare/compose-1,compose-2", "light", ready("compare"))
    texts = browser.value("[...document.querySelectorAll('.waterfall .number')].map(figure => figure.textContent)")
    assert (texts[0], texts[-1]) == (seconds(first), seconds(second))
    drawn = "[bar.className, parseFloat(bar.style.left), parseFloat(bar.style.width)]"
    bars = browser.value(f"[...document.querySelectorAll('.waterfall .track > span')].map(bar => {drawn})")
    end = bars[0][2]
    for kind, left, width in bars[1:-1]:
        assert (left if kind == "longer" else left + width) == pytest.approx(end, abs=0.01)
        end = left + width if kind == "longer" else left
    assert end == pytest.approx(bars[-1][2], abs=0.01)
    browser.value("[...document.querySelectorAll('th a')].find(link => link.textContent === 'as the base').click()")
    browser.wait("location.hash.endsWith('compose-2,compose-1')")


def test_from_an_empty_project_to_a_result_and_its_command(
    empty: str, browser: Browser, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A bad value is explained beside its field; then the job runs, and its command gives the same bytes elsewhere."""
    browser.resize(1280)
    browser.open(empty, "light", ready("project"))
    assert "No results yet" in browser.value("document.body.innerText")
    browser.value("document.querySelector('a[href=\"#/ask/compose\"]').click()")
    browser.wait(ready("ask"))
    set_field(browser, "field-tensor", "3")
    browser.value("document.querySelector('button[type=submit]').click()")
    browser.wait("!!document.querySelector('[data-field=tensor] .error')")
    error = browser.value("document.querySelector('[data-field=tensor] .error').textContent")
    assert error == "tensor = 3 does not divide 16 GPUs (16 % 3 = 1); degrees that do: 1, 2, 4, 8"
    set_field(browser, "field-tensor", "2")
    browser.wait("document.querySelector('.copied pre').textContent.endsWith('--tp 2')")
    browser.value("document.querySelector('button[type=submit]').click()")
    browser.wait(ready("summary"))
    command = browser.value("document.querySelector('.copied pre').textContent")
    name = command.split()[-1]
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(elsewhere)
        assert main.run([*command.split()[1:], "-q"]) == 0
    assert (elsewhere / name).read_bytes() == (tmp_path / name).read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"compose-1.json", "compose-1.log", "compose-1.sh"}


def test_a_refusal_stands_at_the_button_and_leads_to_its_field(empty: str, browser: Browser) -> None:
    """The field is among the further options, screens below the button; they open, and the field takes the focus."""
    browser.resize(1280)
    browser.open(f"{empty}ask/rl", "light", ready("ask"))
    set_field(browser, "field-nodes", "")
    set_field(browser, "field-gpus_per_node", "")
    browser.value("document.querySelector('.ask details').open = true")
    browser.wait("!!document.getElementById('field-world_size')")
    set_field(browser, "field-world_size", "7")
    set_field(browser, "field-tp", "2")
    browser.value("document.querySelector('button[type=submit]').click()")
    browser.wait("!!document.querySelector('form > .row > .problem')")
    text = browser.value("document.querySelector('form > .row > .problem').textContent")
    browser.value("document.querySelector('form > .row > .problem + button').click()")
    marked = browser.value("document.activeElement.closest('.field').querySelector('.error').textContent")
    assert marked == text


def test_a_reload_keeps_what_was_typed_and_another_page_forgets_it(empty: str, browser: Browser) -> None:
    browser.open(f"{empty}ask/compose", "light", ready("ask"))
    set_field(browser, "field-sequence", "2048")
    browser.wait("document.querySelector('.copied pre').textContent.includes('--seq 2048')")
    browser.open(f"{empty}ask/compose", "light", ready("ask"))
    assert browser.value("document.getElementById('field-sequence').value") == "2048"
    browser.value("location.hash = '#/'")
    browser.wait(ready("project"))
    browser.value("location.hash = '#/ask/compose'")
    browser.wait(ready("ask"))
    assert browser.value("document.getElementById('field-sequence').value") == "4096"


def test_a_question_is_changed_by_keyboard(address: str, browser: Browser, folder: Path) -> None:
    """A slider moves by an arrow, the figures follow, and nothing is written."""
    before = sorted(path.name for path in folder.iterdir())
    browser.resize(1280)
    browser.open(f"{address}change/compose-1", "light", ready("change"))
    browser.value("document.getElementById('change-bandwidth').focus()")
    browser.press("ArrowLeft")
    browser.wait("document.querySelector('[data-ready=change] [role=status]').textContent.startsWith('Answered')")
    assert "worse" in browser.value("document.querySelector('[data-figure=step] .difference').textContent")
    browser.wait("document.querySelector('.copied pre').textContent.includes('--bandwidth inter=0.9')")
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.long
def test_two_degrees_are_composed_from_eager_layers(address: str, browser: Browser) -> None:
    """Megatron's trainer is not captured for a slider; values that are refused show the base without differences."""
    browser.resize(1280)
    browser.open(f"{address}change/compose-1", "light", ready("change"))
    for degree in ("tensor", "pipeline"):
        browser.value(f"document.getElementById('change-{degree}').focus()")
        browser.press("ArrowRight")
    browser.wait("!!document.querySelector('[data-ready=change] .problem')")
    assert "needs micro-batches" in browser.value("document.querySelector('[data-ready=change] .problem').textContent")
    assert browser.value("document.querySelectorAll('.cards .difference').length") == 0
    browser.value("document.getElementById('change-global_batch').focus()")
    browser.press("ArrowRight")
    browser.wait("document.querySelectorAll('.cards .difference').length > 0")
    command = browser.value("document.querySelector('.copied pre').textContent")
    assert "--tp 2 --pp 2" in command
    assert "--framework eager" in command


@pytest.mark.long
def test_a_sweep_has_a_row_for_every_value(address: str, browser: Browser) -> None:
    """The base is among them, and says that it is."""
    browser.resize(1280)
    browser.open(f"{address}change/compose-1", "light", ready("change"))
    browser.value("document.querySelector('[data-change=bandwidth] button').click()")
    browser.wait("!!document.querySelector('[data-sweep=done]')")
    rows = browser.value("[...document.querySelectorAll('[data-sweep] .scroll tbody tr')].map(row => row.innerText)")
    assert len(rows) == 10
    assert [row.split()[0] for row in rows if "as the base" in row] == ["1"]
    assert layout.faults(browser) == []


def test_pools_have_a_block_for_every_phase_of_the_file(address: str, browser: Browser, folder: Path) -> None:
    """As wide as its share of the time, and the tail of the rollout hatched."""
    answer = decode_json((folder / "rl-1.json").read_bytes())
    browser.resize(1280)
    browser.open(f"{address}result/rl-1/pools", "light", ready("pools"))
    widths = browser.value("[...document.querySelectorAll('.track > span')].map(block => block.style.width)")
    end_s = max(span["end_s"] for span in answer["timeline"])
    shares = [(span["end_s"] - span["start_s"]) / end_s for span in answer["timeline"]]
    assert [float(width.rstrip("%")) / 100 for width in widths] == pytest.approx(shares, rel=1e-3)
    assert browser.value("document.querySelectorAll('.tail').length") == (answer["figures"]["rollout_tail_s"] > 0)


def test_requests_have_their_times_and_the_batch_its_peak(address: str, browser: Browser, folder: Path) -> None:
    """A bar for each phase of a request that took time, at its share of the run."""
    answer = decode_json((folder / "serve-1.json").read_bytes())
    times, load = answer["request_times"], answer["over_time"]
    browser.resize(1280)
    browser.open(f"{address}result/serve-1/serving", "light", ready("serving"))
    drawn = browser.value(
        "[...document.querySelectorAll('.requests rect')].map(bar => [bar.x.baseVal.value, bar.width.baseVal.value])"
    )
    columns = [times[name] for name in ("sent_s", "scheduled_s", "first_token_s", "last_token_s")]
    spans = [(start, end - start) for moments in zip(*columns) for start, end in itertools.pairwise(moments)]
    expected = [span for span in spans if span[1] > 0]
    assert len(drawn) == len(expected) > 100
    assert [value for bar in drawn for value in bar] == pytest.approx(
        [value for span in expected for value in span], abs=1e-4
    )
    labels = browser.value("[...document.querySelectorAll('.chart')].map(chart => chart.getAttribute('aria-label'))")
    peaks = f"at most {max(load['running'])} in batches and {max(load['waiting'])} waiting"
    assert labels[0] == f"Batch and queue over time: {peaks}"
    assert labels[1] == f"KV cache over time: at most {max(load['kv_use']) * 100:.1f} % of the blocks"


@pytest.mark.long
def test_load_curves_have_the_limit_and_the_knee(address: str, browser: Browser) -> None:
    """A curve of each latency over nine rates; lines and their names are in the label of the chart."""
    browser.resize(1280)
    browser.open(f"{address}result/serve-1/load", "light", "!!document.querySelector('[data-load=done]')")
    labels = browser.value("[...document.querySelectorAll('.chart')].map(chart => chart.getAttribute('aria-label'))")
    assert labels == [
        "Time to first token by rate, SLO 500 ms, knee, sustainable",
        "Time per output token by rate, knee, sustainable",
    ]
    assert browser.value("document.querySelectorAll('[data-load] .scroll tbody tr').length") == 9
    assert layout.faults(browser) == []


def test_a_page_follows_what_happens_in_the_folder(empty: str, browser: Browser, folder: Path, tmp_path: Path) -> None:
    """By the server's events: a file that comes is listed without a question of the page."""
    browser.open(empty, "light", ready("project"))
    shutil.copy(folder / "serve-1.json", tmp_path / "mine.json")
    browser.wait("!!document.querySelector('[data-result=mine]')")


@pytest.mark.long
def test_pages_that_were_left_keep_no_connection(address: str, browser: Browser) -> None:
    """A browser has six to a server: the seventh page waited for one of them until the first was forgotten."""
    for _ in range(8):
        browser.open(address, "light", ready("project"))


def test_a_read_only_link_has_no_control_that_changes(address: str, browser: Browser) -> None:
    page = address.replace(TOKEN, Tokens(TOKEN).read_only)
    browser.open(page, "light", ready("project"))
    assert "This link only shows" in browser.value("document.body.innerText")
    assert browser.value("document.querySelectorAll('.questions, .job button, [aria-label^=Delete]').length") == 0
    browser.open(f"{page}result/compose-1/summary", "light", ready("summary"))
    texts = browser.value("[...document.querySelectorAll('.title .button')].map(button => button.textContent)")
    assert texts == ["Timelines", "Report"]
    for question, name in (("ask/compose", "ask"), ("change/compose-1", "change")):
        browser.open(f"{page}{question}", "light", ready(name))
        browser.wait("!document.querySelector('button.primary')")


def test_panes_change_by_arrows(address: str, browser: Browser) -> None:
    browser.open(f"{address}result/compose-1/summary", "light", ready("summary"))
    browser.value("document.querySelector('[role=tab][aria-selected=true]').focus()")
    browser.press("ArrowRight")
    browser.wait(ready("memory"))
    assert browser.value("document.activeElement.dataset.pane") == "memory"


def test_a_plan_of_a_search_opens_as_a_question(address: str, browser: Browser) -> None:
    browser.open(f"{address}result/search-1", "light", ready("search"))
    browser.value("document.querySelector('td a').click()")
    browser.wait(f"{ready('ask')} && document.querySelector('.copied pre').textContent.includes('--dp-style')")
    command = browser.value("document.querySelector('.copied pre').textContent")
    assert command.startswith("presim compose llama3-8b --gpu h100-sxm --gpus-per-node 4 --seq 1024 --mbs ")
    browser.value("document.querySelector('button[type=submit]').click()")
    browser.wait(ready("summary"))


def test_plans_of_a_search_are_chosen_compared_and_exported(address: str, browser: Browser, folder: Path) -> None:
    """The file has a row for each plan, with the figures of the result."""
    answer = decode_json((folder / "search-1.json").read_bytes())
    step_s = {trial["number"]: trial["figures"]["step_time_s"] for trial in answer["trials"] if trial["figures"]}
    browser.resize(1280)
    browser.open(f"{address}result/search-1", "light", ready("search"))
    browser.value("[...document.querySelectorAll('td input')].slice(0, 2).forEach(box => box.click())")
    browser.wait("!!document.querySelector('[data-chosen=\"2\"]')")
    assert layout.faults(browser) == []
    head = browser.value("[...document.querySelectorAll('[data-chosen] th')].map(cell => cell.textContent)")
    assert head == ["plan 1", "plan 2"]
    browser.value(
        "window.saved = ''; URL.createObjectURL = blob => (blob.text().then(text => { window.saved = text; }), '#')"
    )
    browser.value("[...document.querySelectorAll('button')].find(key => key.textContent.includes('CSV')).click()")
    browser.wait("window.saved !== ''")
    rows = list(csv.DictReader(io.StringIO(browser.value("window.saved"))))
    assert [float(row["step_time_s"]) for row in rows] == [step_s[number] for number in answer["best"]]


def test_deployments_are_chosen_in_chart_and_table_and_compared(address: str, browser: Browser, folder: Path) -> None:
    """The row of the best has the figures of the answer; the other axis has the limit of its own metric only."""
    answer = decode_json((folder / "deploy-1.json").read_bytes())
    browser.resize(1280)
    browser.open(f"{address}result/deploy-1", "light", ready("deployments"))
    rows = "[...document.querySelectorAll('#pane .scroll tbody tr')]"
    (best,) = browser.value(f"{rows}.map(row => row.innerText.split('\\t')).filter(row => row.includes('best'))")
    assert best[6:8] == [f"{answer['best']['ttft_ms']:.3g}", f"{answer['best']['tpot_ms']:.3g}"]
    assert len(answer["simulated"]) > 1
    browser.value(f"{rows}.slice(0, 2).forEach(row => row.querySelector('input').click())")
    browser.wait("!!document.querySelector('[data-chosen=\"2\"]')")
    head = browser.value("[...document.querySelectorAll('[data-chosen] th')].map(cell => cell.textContent)")
    assert head == [entry["deployment"] for entry in answer["simulated"][:2]]
    assert layout.faults(browser) == []
    assert "SLO" in browser.value("document.querySelector('.chart').getAttribute('aria-label')")
    browser.value(
        "(select => { select.value = 'ttft'; select.dispatchEvent(new Event('change', {bubbles: true})); })"
        "(document.querySelector('#pane select'))"
    )
    browser.wait("document.querySelector('.chart').getAttribute('aria-label').includes('TTFT')")
    assert "SLO" not in browser.value("document.querySelector('.chart').getAttribute('aria-label')")
    left, top, width, height = browser.value(
        "(box => [box.left, box.top, box.width, box.height])(document.querySelector('.u-over').getBoundingClientRect())"
    )
    browser.drag((left + width / 2, top + height / 2), (left + width / 2 + 5, top + height / 2))
    browser.wait("document.querySelector('.tip').textContent.includes('tokens/s/GPU')")


def test_a_dropped_config_is_named_by_the_form(empty: str, browser: Browser, tmp_path: Path) -> None:
    """It is copied into the folder first."""
    browser.resize(1280)
    browser.open(f"{empty}ask/compose", "light", ready("ask"))
    browser.value(
        """(() => {
          const transfer = new DataTransfer();
          transfer.items.add(new File(['{"model_type": "llama"}'], "mine.json"));
          dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, cancelable: true }));
        })()"""
    )
    browser.wait("document.getElementById('field-model').value === 'mine.json'")
    assert (tmp_path / "mine.json").read_text() == '{"model_type": "llama"}'
    assert layout.faults(browser) == []


# Each question: what stands in the folder before (words of the command line), and the fields that are set.
WALKS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "compose": ((), {"sequence": "1024"}),
    "serve": ((), {"requests": "40"}),
    "search": ((), {"nodes": "1", "gpus_per_node": "2", "sequence": "512", "tensor": "1", "micro_batch": "1"}),
    "deploy": ((), {"max_gpus": "1"}),
    "rl": ((), {"nodes": "1", "prompts": "8", "response": "128"}),
    "training": ((f"{RESULTS['compose-1']} --json base.json",), {"job": "base.json", "tokens": "1e10"}),
    "simulate": ((f"{RESULTS['compose-1']} -q --save job",), {"directory": "job", "gpu": "b200"}),
    "import": ((f"{RESULTS['compose-1']} -q --kineto traces",), {"files": "traces", "gpu": "h100-sxm"}),
}


def test_every_question_has_its_walk() -> None:
    assert WALKS.keys() == {question.name for question in QUESTIONS}


@pytest.mark.parametrize("question", marked(WALKS, long=("compose", "search", "deploy", "rl", "import")))
def test_a_walk_from_an_empty_project_to_the_same_bytes_on_the_command_line(
    question: str, browser: Browser, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    before, fields = WALKS[question]
    project, elsewhere = tmp_path / "project", tmp_path_factory.mktemp("elsewhere")
    for folder in (project, elsewhere):
        folder.mkdir(exist_ok=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            assert [main.run(words.split()) for words in before] == [0] * len(before)
    for address in served(AppState(project)):
        browser.resize(1280)
        browser.open(address, "light", ready("project"))
        browser.value(f"document.querySelector('a[href=\"#/ask/{question}\"]').click()")
        browser.wait(ready("ask"))
        for name, value in fields.items():
            set_field(browser, f"field-{name}", value)
        browser.value("document.querySelector('button[type=submit]').click()")
        browser.wait("!!document.querySelector('#pane [data-ready]') || !!document.querySelector('[role=alert]')")
        assert browser.value("document.querySelector('[role=alert]')?.textContent ?? ''") == ""
        command = browser.value("document.querySelector('.copied pre').textContent")
        assert layout.faults(browser) == []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(elsewhere)
        assert main.run([*shlex.split(command)[1:], "-q"]) == 0
    name = shlex.split(command)[-1]
    assert (elsewhere / name).read_bytes() == (project / name).read_bytes()
