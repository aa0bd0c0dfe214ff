"""Describes the model of a config: ``python -m presim.models.export CONFIG OUT``."""

from __future__ import annotations

import os
import sys

import msgspec

from presim.files import decode_foreign_json, read_bytes, write_file
from presim.models.answers import Answer
from presim.models.export.refusal import Refusal


def main(config_path: str, out: str) -> None:
    """Read a config, write a description or the reason why there is none."""
    os.environ |= {"TRANSFORMERS_VERBOSITY": "error", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_OFFLINE": "1"}
    from presim.models.export import classes, decoder

    config = decode_foreign_json(read_bytes(config_path, "give a model's config.json"))
    try:
        answer = Answer(model=decoder.describe(classes.build(config)))
    except Refusal as refusal:
        answer = Answer(refusal=str(refusal))
    write_file(out, msgspec.json.encode(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
