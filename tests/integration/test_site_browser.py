"""The documentation site in a real browser: its search finds the page that answers, and code copies as commands."""

from __future__ import annotations

import functools
import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from support.chromium import PROGRAM, Browser, started

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium here")
ROOT = Path(__file__).parents[2]
ITEMS = "[...document.querySelectorAll('.md-search-result__item a.md-search-result__link')]"


class _Silent(http.server.SimpleHTTPRequestHandler):
    """Serves files and logs nothing."""

    def log_message(self, format: str, *args: object) -> None:
        """See the base class."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Silent, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with started(tmp_path_factory.mktemp("chromium")) as chromium:
        yield chromium


@pytest.mark.long
@pytest.mark.parametrize(
    ("question", "page"),
    [
        ("out of memory", "guide/which-verb.html"),
        ("how many GPUs", "guide/which-verb.html"),
        ("docker", "guide/install.html"),
        ("exit codes", "reference/cli.html"),
    ],
)
def test_the_search_finds_the_page_that_answers_among_the_first_three(
    site: str, browser: Browser, question: str, page: str
) -> None:
    browser.open(f"{site}index.html?q={quote(question)}", "light", f"{ITEMS}.length > 0")
    links = browser.value(f"{ITEMS}.map(link => new URL(link.href).pathname.slice(1))")
    assert page in list(dict.fromkeys(links))[:3]


def test_copied_console_lines_have_no_prompt_and_no_output(site: str, browser: Browser) -> None:
    browser.open(f"{site}guide/app.html", "light", "!!document.querySelector('.md-code__button')")
    browser.value("document.execCommand = () => { window.copied = document.activeElement.value; return true; }")
    browser.value("document.querySelector('.md-code__button').click()")
    assert browser.value("window.copied").strip() == "presim app project"
