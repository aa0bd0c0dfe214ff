"""Pictures of pages compared with kept ones: by structure at a low resolution, as fonts and browsers differ."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter

SIZE = (75, 56)  # a cell is 16 pixels wide: less than a card, more than the stroke of a letter
_BLUR = 24.0  # pixels: text that is laid out a line lower is still about where it was
MOST = 0.25  # of the difference to a page of one colour: still the same page
_KEPT = Path(__file__).parents[1] / "golden" / "view"


def small(picture: Image.Image) -> Image.Image:
    """What is kept of a picture."""
    return picture.filter(ImageFilter.GaussianBlur(_BLUR / 3)).resize(SIZE, Image.Resampling.BOX)


def difference(one: Image.Image, other: Image.Image) -> float:
    """Mean difference of two small pictures, by colour, 0 to 255; each may be moved by a cell."""
    first, second = (np.asarray(each.convert("RGB"), np.float64) for each in (one, other))
    moves = [(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1)]
    apart = np.stack([np.abs(first - np.roll(second, move, (0, 1))).mean(axis=2) for move in moves])
    return float(apart.min(axis=0).mean())


def check(picture: Image.Image, name: str, folder: Path) -> None:
    """Raise where a page is not as kept; writes the three pictures beside each other to a folder."""
    kept = _KEPT / f"{name}.png"
    seen = small(picture)
    if not kept.exists():
        raise AssertionError(f"there is no {kept}; run with KEEP_PICTURES=1 to make it")
    expected = Image.open(kept)
    colours = expected.convert("RGB").getcolors(SIZE[0] * SIZE[1]) or []
    ground = Image.new("RGB", SIZE, max(colours)[1])  # the most frequent one: of the page itself
    apart, most = difference(seen, expected), MOST * difference(expected, ground)
    if apart > most:
        sheet = Image.new("RGB", (3 * 600, 450))
        for place, one in enumerate((expected, seen, picture)):
            sheet.paste(one.convert("RGB").resize((600, 450)), (600 * place, 0))
        sheet.save(folder / f"{name}.png")
        raise AssertionError(
            f"{name} is {apart:.1f} of 255 from the kept picture, more than {most:.1f}: see {folder / name}.png (kept, "
            f"seen, the page); if it is meant so, run with KEEP_PICTURES=1"
        )


def keep(picture: Image.Image, name: str) -> None:
    """Keep a picture as the one to compare with."""
    _KEPT.mkdir(parents=True, exist_ok=True)
    small(picture).quantize(64).save(_KEPT / f"{name}.png", optimize=True)
