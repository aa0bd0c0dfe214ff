"""A guide answers one question on a page, and sentences are short."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
GUIDES = sorted((DOCS / "guide").glob("*.md"))
GENERATED = ("cli.md", "result.md")
PAGES = GUIDES + [
    page
    for folder in (".", "accuracy", "decisions", "explanation", "extend", "reference", "tutorial")
    for page in sorted((DOCS / folder).glob("*.md"))
    if page.name not in GENERATED
]
MOST_GUIDE_WORDS = 900
MOST_SENTENCE_WORDS = 34
LONGER_GUIDES: tuple[str, ...] = ()  # names of guides that are not split yet
_CODE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_ITEM = re.compile(r"^[-*] ")
_CELL_END = re.compile(r"(?<!\\)\|")
_SENTENCE_END = re.compile(r"(?<!e\.g\.)(?<!i\.e\.)(?<=[.!?])(?:\*\*)?\s+")


def paragraphs(text: str) -> Iterator[str]:
    """Paragraphs, list items and cells of tables, each in one line, without code, headings and targets of links."""
    lines: list[str] = []
    for line in [*_CODE.sub("", text).splitlines(), ""]:
        stripped = line.strip().removeprefix(">").strip()
        is_break = not stripped or stripped.startswith(("#", "|"))
        if lines and (is_break or _ITEM.match(stripped)):
            yield re.sub(r"\]\([^)]*\)", "]", " ".join(lines))
            lines = []
        if stripped.startswith("|"):
            yield from (re.sub(r"\]\([^)]*\)", "]", cell.strip()) for cell in _CELL_END.split(stripped))
        if not is_break:
            lines.append(_ITEM.sub("", stripped, count=1))


def long_sentences(text: str) -> list[str]:
    """Sentences with more words than readers take in at once."""
    sentences = (sentence for paragraph in paragraphs(text) for sentence in _SENTENCE_END.split(paragraph))
    return [sentence for sentence in sentences if len(sentence.split()) > MOST_SENTENCE_WORDS]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_sentences_are_short(page: Path) -> None:
    assert not long_sentences(page.read_text())


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_a_guide_is_short(page: Path) -> None:
    """Options and tables go to ``docs/reference``, errors that were measured to ``docs/accuracy``."""
    assert len(page.read_text().split()) <= MOST_GUIDE_WORDS or page.stem in LONGER_GUIDES


def test_long_sentences_are_found() -> None:
    """In paragraphs and list items, across lines, and in cells of tables; not in code."""
    words = " ".join(["word"] * MOST_SENTENCE_WORDS)
    assert not long_sentences(f"{words}.\n\n- {words}.\n- {words}.")
    assert not long_sentences(f"```text\n{words} {words}\n```\n| {words} | {words} |\n")
    assert len(long_sentences(f"A {words}\nend.\n\n- B {words} end. C.\n> D {words}\n> end.\n")) == 3
    assert len(long_sentences(f"| name | meaning |\n|---|---|\n| a | {words} end |\n")) == 1
