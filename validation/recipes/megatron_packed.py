"""``megatron_gpt.py`` with samples packed into each sequence, which attend to themselves alone.

``--pieces N``: each sequence of a batch is N samples of equal length. Only attention knows of it, as with the offsets
that Megatron hands it for packed sequences; all else works on the whole sequence. Takes the options of
``megatron_gpt.py`` besides.
"""

from __future__ import annotations

import argparse
import sys

import megatron_gpt
from packed_samples import attend_apart


def parse() -> argparse.Namespace:
    """This recipe's own option; the others are left to ``megatron_gpt``."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False, add_help=False)
    parser.add_argument("--pieces", type=int, required=True, help="samples in each sequence")
    own, others = parser.parse_known_args()
    sys.argv[1:] = others
    return own


if __name__ == "__main__":
    attend_apart(parse().pieces)
    megatron_gpt.main()
