"""Describes the named models by transformers' code: writes `src/presim/composition/models/data/descriptions.json`.

Run it after a change of `src/presim/serving/data/models.toml`, of the configs in `presim.composition.graph.models`, or
of `presim.composition.models`; a test compares the file with the code of the installed transformers.
"""

from __future__ import annotations

from presim.composition.models.describe_model import SHIPPED, encode_shipped, read_code, structure_of
from presim.serving.model_lookup import all_names, config_of
from presim.system.files import write_file


def main() -> None:
    """Describe each model once; of those that generate no text, why they have no description."""
    configs = [config_of(name)[0] for name in all_names()]
    answers = read_code([structure_of(config) for config in configs], "models")
    for name, answer in zip(all_names(), answers, strict=True):
        print(f"{name}: {f'{answer.model.parameters:,} parameters' if answer.model else answer.refusal}")
    write_file(SHIPPED, encode_shipped(dict(zip(all_names(), zip(configs, answers, strict=True), strict=True))))


if __name__ == "__main__":
    main()
