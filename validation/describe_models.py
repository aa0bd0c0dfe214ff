"""Describes the named models by transformers' code: writes `src/presim/composition/models/data/descriptions.json`.

Run it after a change of `src/presim/serving/data/models.toml` or of `presim.composition.models`; a test compares the
file with the code of the installed transformers.
"""

from __future__ import annotations

from presim.composition.models.describe_model import SHIPPED, encode_shipped, read_code, structure_of
from presim.errors import InputError
from presim.serving.model_lookup import config_of, names
from presim.system.files import write_file


def main() -> None:
    """Describe each model once."""
    models = {}
    configs = [config_of(name)[0] for name in names()]
    for name, config, answer in zip(
        names(), configs, read_code([structure_of(config) for config in configs], "models")
    ):
        if answer.model is None:
            raise InputError(f"{name} {answer.refusal}")
        models[name] = config, answer.model
        print(f"{name}: {answer.model.parameters:,} parameters")
    write_file(SHIPPED, encode_shipped(models))


if __name__ == "__main__":
    main()
