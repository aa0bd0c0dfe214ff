"""Hooks of MkDocs: the navigation is the lists of ``docs/index.md``, and links may lead out of ``docs``.

A page that ``docs/index.md`` does not name fails the strict build. Files outside ``docs`` that a page links to
(results, notes, scripts) are part of the site, below ``repository/``, so that a link works here as on GitHub.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
_OUTSIDE = "repository/"
# Weight of pages in the site's search: a question finds the page that answers it before notes and references.
_SEARCH_BOOSTS = {"guide/which-verb.md": 20.0, "guide/": 4.0, "tutorial/": 4.0, "index.md": 4.0, _OUTSIDE: 0.3}
_GLOBS = ("*.md", "LICENSE", "benchmarks/**/*.md", "validation/**/*.md", "examples/**/*.md")
_LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)#\s]+)")
_ENTRY = re.compile(r"^- \[([^\]]+)\]\(([^)#]+)\)", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Takes the navigation from the index: a section a heading, an entry a list item."""
    config.nav = navigation((DOCS / "index.md").read_text())
    return config


def navigation(index: str) -> list[dict[str, Any]]:
    """The headings of an index with the pages listed below them, in MkDocs' form."""
    sections: list[dict[str, Any]] = [{"presim": "index.md"}]
    for section in index.split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        entries = [{name: _in_site(path, "docs")} for name, path in _ENTRY.findall(text) if path.endswith(".md")]
        sections.append({title: entries})
    return sections


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the files outside ``docs`` that pages may link to."""
    pages = [path for pattern in _GLOBS for path in sorted(ROOT.glob(pattern))]
    linked = {target for page in [*pages, *DOCS.rglob("*.md")] for target in _targets(page)}
    for path in sorted({*pages, *linked}):
        if not path.is_relative_to(DOCS):
            name = _OUTSIDE + path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def _targets(page: Path) -> list[Path]:
    """The files that a page links to."""
    paths = [(page.parent / link).resolve() for link in _LINK.findall(page.read_text())]
    return [path for path in paths if path.is_file()]


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Points links to where their targets are in the site."""
    here = page.file.src_uri
    boost = next((boost for start, boost in _SEARCH_BOOSTS.items() if here.startswith(start)), 1.0)
    page.meta.setdefault("search", {"boost": boost})
    source = here.removeprefix(_OUTSIDE) if here.startswith(_OUTSIDE) else f"docs/{here}"
    folder = posixpath.dirname(source)
    return _LINK.sub(
        lambda link: posixpath.relpath(_in_site(link[1], folder), posixpath.dirname(here) or "."), markdown
    )


def _in_site(link: str, folder: str) -> str:
    """The place in the site of what a page of this folder of the repository links to."""
    path = posixpath.normpath(posixpath.join(folder, link))
    return path.removeprefix("docs/") if path.startswith("docs/") else _OUTSIDE + path
