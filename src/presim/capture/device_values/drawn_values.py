"""Distributions of values that policies draw: lengths of generated text, and shares of accepted draft tokens.

``uniform:LOW:HIGH[:SEED]`` and ``lognormal:MEDIAN:SIGMA[:SEED]`` draw the length of each sequence; ``file:PATH`` has
lengths that are used one after the other. ``P[:SEED]`` accepts each draft token with probability P.
"""

from __future__ import annotations

import math
import random

from presim.errors import InputError
from presim.system.files import read_text

LENGTHS = "a number of tokens, uniform:LOW:HIGH[:SEED], lognormal:MEDIAN:SIGMA[:SEED] or file:PATH"
ACCEPTANCE = "a probability, and perhaps a seed: 0.8 or 0.8:1"
_DRAWN = 4096  # sequences after which lengths repeat
_LONGEST = 1 << 31


def lengths(text: str) -> list[int]:
    """Tokens before the end of each sequence in turn; one number stands for all sequences.

    Raises:
        ValueError: the text has none of the forms.
        InputError: the file cannot be read, or has no lengths.
    """
    kind, *arguments = text.split(":", 1) if text.startswith("file:") else text.split(":")
    if not arguments:
        return [_length(kind)]
    if kind == "file":
        return _lengths_of_file(arguments[0])
    if kind not in ("uniform", "lognormal") or len(arguments) not in (2, 3):
        raise ValueError(text)
    source = random.Random(_length(arguments[2]) if arguments[2:] else 0)
    if kind == "uniform":
        low, high = map(_length, arguments[:2])
        if low > high:
            raise ValueError(text)
        return [source.randint(low, high) for _ in range(_DRAWN)]
    median, sigma = float(arguments[0]), float(arguments[1])
    if not (1 <= median <= _LONGEST and 0 <= sigma <= 8):
        raise ValueError(text)
    return [min(_LONGEST, round(source.lognormvariate(math.log(median), sigma))) for _ in range(_DRAWN)]


def acceptance(text: str) -> tuple[float, int]:
    """The probability that a draft token is accepted, and the seed.

    Raises:
        ValueError: the text is neither.
    """
    share, _, seed = text.partition(":")
    probability = float(share)
    if not 0 <= probability <= 1:
        raise ValueError(text)
    return probability, _length(seed) if seed else 0


def _length(text: str) -> int:
    length = int(text)
    if not 0 <= length <= _LONGEST:
        raise ValueError(text)
    return length


def _lengths_of_file(path: str) -> list[int]:
    words = read_text(path, "give --values eos_after=file:PATH a file with one length per sequence").replace(",", " ")
    try:
        read_lengths = [_length(word) for word in words.split()]
    except ValueError as error:
        raise InputError(
            f"--values eos_after=file:{path}: expected a file with one length per sequence ({error})"
        ) from error
    if not read_lengths:
        raise InputError(f"--values eos_after=file:{path} has no lengths; write one for each sequence")
    return read_lengths
