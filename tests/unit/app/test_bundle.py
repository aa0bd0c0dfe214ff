"""The page's bundle is that of its sources, small, and needs no network."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
STATIC = ROOT / "src/presim/app/static"
WEB = ROOT / "src/presim/app/web"
MOST_BYTES = 500_000  # compressed


def sources() -> list[Path]:
    """What `make app` bundles."""
    top = [path for pattern in ("*.json", "*.ts", "*.html") for path in WEB.glob(pattern)]
    return [*top, *(WEB / "public").iterdir(), *(WEB / "src").iterdir()]


def test_the_bundle_was_made_of_the_present_sources() -> None:
    """After a change in app/web, `make app` makes it again."""
    recorded = dict(reversed(line.split()) for line in (STATIC / "SOURCES").read_text().splitlines())
    present = {str(path.relative_to(ROOT)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sources()}
    assert recorded == present


def test_the_bundle_is_small() -> None:
    files = [path for path in STATIC.iterdir() if path.suffix in (".js", ".css", ".html")]
    assert sum(len(gzip.compress(path.read_bytes())) for path in files) < MOST_BYTES


def test_the_page_names_no_other_site() -> None:
    """Namespaces of SVG and MathML are names, not addresses that anybody asks."""
    text = "".join((STATIC / name).read_text() for name in ("index.html", "app.js", "index.css"))
    sites = set(re.findall(r"https?://[\w.-]+", text))
    assert sites <= {"http://www.w3.org"}


def test_every_page_names_an_icon() -> None:
    """Else a browser asks the server for /favicon.ico, and its console logs the refusal."""
    package = ROOT / "src/presim"
    pages = [
        path for pattern in ("*.jinja", "*.html") for path in package.rglob(pattern) if "node_modules" not in str(path)
    ]
    heads = {str(path.relative_to(package)): path.read_text() for path in pages if "<head>" in path.read_text()}
    assert len(heads) >= 8
    assert [name for name, text in heads.items() if '<link rel="icon"' not in text] == []
