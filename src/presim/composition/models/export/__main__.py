"""Describes the models of a list of configs: ``python -m presim.composition.models.export CONFIGS OUT``."""

from __future__ import annotations

import os
import sys
from typing import Any

import msgspec

from presim.composition.models.description_replies import DescriptionReply
from presim.composition.models.export.refusal import Refusal
from presim.system.files import decode_foreign_json, read_bytes, write_file


def main(configs_path: str, out: str) -> None:
    """Read configs, write for each a description or the reason why there is none."""
    os.environ |= {"TRANSFORMERS_VERBOSITY": "error", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_OFFLINE": "1"}
    configs = decode_foreign_json(read_bytes(configs_path, "describe the model again"))
    write_file(out, msgspec.json.encode([_answer(config) for config in configs]))


def _answer(config: dict[str, Any]) -> DescriptionReply:
    from presim.composition.models.export import classes, decoder

    try:
        return DescriptionReply(model=decoder.describe(classes.build(config)))
    except Refusal as refusal:
        return DescriptionReply(refusal=str(refusal))
    except Exception as error:  # noqa: BLE001  sizes that neither the class nor presim expects must not end the process
        return DescriptionReply(
            refusal=f"has layers that presim does not understand ({type(error).__name__}: {error}); report it"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
