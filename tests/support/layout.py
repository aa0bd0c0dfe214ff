"""What is wrong with the layout of a page in the browser: a list of sentences, empty where nothing is.

An element may hold more than its box only where the box scrolls or cuts on purpose (``overflow`` is not visible).
"""

from __future__ import annotations

from pathlib import Path

from support.chromium import Browser

WIDTHS = (700, 1280, 1920)  # of a window, in pixels
_FAULTS = Path(__file__).with_name("layout.js").read_text().partition("\n")[2]


def faults(browser: Browser) -> list[str]:
    """What is wrong with the page that is shown."""
    found: list[str] = browser.value(_FAULTS)
    return [*found, *(f"the console says {line}" for line in browser.console)]
