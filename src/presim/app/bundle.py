"""The page as it is sent: one answer holds all that the first picture needs, and its script is asked for once."""

from __future__ import annotations

import hashlib
import re
from importlib import resources

from presim.report.palette import stylesheet

_STYLE = re.compile(r'<link[^>]*rel="stylesheet"[^>]*href="([^"]+)"[^>]*>')
_SCRIPT = re.compile(r'(<script[^>]*src=")([^"]+)(")')
FOREVER = "public, max-age=31536000, immutable"  # of an address that names the content's digest


def index_page() -> str:
    """The page with its styles within, so that a browser draws it before anything else has come.

    The script's address has the digest of its content: it may be kept by browsers as long as they like.
    """
    html = _STYLE.sub(lambda link: f"<style>{_style(link[1])}</style>", _static("index.html"))
    return _SCRIPT.sub(lambda script: f"{script[1]}{script[2]}?v={_digest(script[2])}{script[3]}", html)


def _style(address: str) -> str:
    return stylesheet() if address == "/palette.css" else _static(_name(address))


def _digest(address: str) -> str:
    return hashlib.sha256(_static(_name(address)).encode()).hexdigest()[:16]


def _name(address: str) -> str:
    return address.removeprefix("/static/")


def _static(name: str) -> str:
    return resources.files("presim.app").joinpath("static", name).read_text(encoding="utf-8")
