"""The report as a page: whole, alone, and with what the terminal shows."""

from __future__ import annotations

import re
import shlex
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from presim.analysis.summarise import summarise
from presim.cli import main
from presim.report import content, html, json
from presim.report.palette import css_classes
from presim.result import Result
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Trace
from support import fakes, workloads
from support.step_shapes import critic_and_generator


def result_of(trace: Trace) -> Result:
    priced = fakes.priced(trace)
    return summarise(priced, fakes.simulate(priced), fakes.DEVICE)


class Reader(HTMLParser):
    """Holds that tags are closed in the order in which they were opened; keeps the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Shapes of SVG close themselves."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("trace", [workloads.llama_8b(steps=2), workloads.launch_bound(), TraceBuilder().trace()])
def test_a_page_has_the_figures_of_the_terminal(trace: Trace) -> None:
    """Whatever the trace holds, also nothing."""
    result = result_of(trace)
    text = Reader(html.render(result)).text
    for cell in content.headline(result):
        assert cell.value in text
        assert cell.remark in text
    assert content.origins(result) in text


def test_a_page_has_the_phases_of_a_step() -> None:
    text = Reader(html.render(result_of(critic_and_generator()))).text
    for shown in ("the step time is that of all together", "loop at gan.py:512", "up to optimizer step at gan.py:2048"):
        assert shown in text


def test_a_page_needs_nothing_else() -> None:
    page = html.render(result_of(workloads.llama_8b(steps=2)))
    assert not re.search(
        r"https?:|src=|@import|url\(|<script|<link", page.replace('<link rel="icon" href="data:,">', "")
    )


def test_script_names_are_not_markup() -> None:
    result = result_of(workloads.launch_bound())
    job = msgspec.structs.replace(result.job, script="<b>train.py</b> --name 'a&b'")
    page = html.render(msgspec.structs.replace(result, job=job))
    assert "<b>train.py" not in page
    assert "<b>train.py</b> --name 'a&b'" in Reader(page).text


def test_a_bar_is_filled_by_its_parts() -> None:
    page = html.render(result_of(workloads.llama_8b(steps=2)))
    bars = re.findall(r'<div class="bar".*?</div>', page, re.DOTALL)
    assert len(bars) == 2
    for bar in bars:
        assert sum(map(float, re.findall(r"flex-grow:([\d.]+)", bar))) == pytest.approx(1, abs=0.01)


def test_every_part_of_a_bar_has_a_colour() -> None:
    result = result_of(workloads.llama_8b(steps=2))
    page = html.render(result)
    for parts in (content.time_parts(result), content.memory_parts(result)):
        classes = css_classes(part.name for part in parts)
        assert len(set(classes)) == len(classes)
        for css_class in classes:
            assert f".{css_class}{{background-color:" in page


def test_a_kept_result_becomes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = result_of(workloads.launch_bound())
    json.write(result, tmp_path / "r.json")
    assert main.run(["report", str(tmp_path / "r.json"), "--html", str(tmp_path / "r.html")]) == 0
    assert capsys.readouterr().out == ""
    written = (tmp_path / "r.html").read_text()
    command = shlex.join(["presim", "report", str(tmp_path / "r.json"), "--html", str(tmp_path / "r.html")])
    assert f"<code>{command}</code> · written" in written
    assert written.partition("<footer")[0] == html.render(result).partition("<footer")[0]


def test_a_kept_result_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    json.write(result_of(workloads.launch_bound()), tmp_path / "r.json")
    assert main.run(["report", str(tmp_path / "r.json")]) == 0
    assert "waiting for host 2.80 ms 77.8%" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "cannot read {path}: No such file or directory; name a file that --json wrote"),
        ("{}", "{path} is not a result of"),
    ],
)
def test_files_without_a_result_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, reason: str
) -> None:
    kept = tmp_path / "r.json"
    if text is not None:
        kept.write_text(text)
    assert main.run(["report", str(kept), "--html", str(tmp_path / "r.html")]) == 2
    assert capsys.readouterr().err.startswith(f"presim: {reason.format(path=kept)}")
    assert not (tmp_path / "r.html").exists()
