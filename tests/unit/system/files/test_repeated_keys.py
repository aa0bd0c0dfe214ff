"""A key that stands twice in a file that somebody wrote is refused: readers take the last one without a word."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim.capture.launchers.accelerate_config import read_config as read_accelerate_config
from presim.composition.launch_configs.settings import read_settings
from presim.composition.launch_files.shapes import read_config
from presim.errors import InputError
from presim.serving.model_lookup import find
from presim.system.files import FormatError, decode_foreign_json, decode_settings_json, decode_yaml


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: 1\nb: 2\na: 3\n", "the key 'a' stands in lines 1 and 3"),
        ("a:\n  - {b: 1}\n  - c: 1\n    c: 2\n", "the key 'c' stands in lines 3 and 4"),
    ],
)
def test_a_repeated_key_of_yaml_is_refused_with_its_lines(text: str, reason: str) -> None:
    with pytest.raises(FormatError) as raised:
        decode_yaml(text)
    assert str(raised.value) == reason


def test_keys_of_other_mappings_and_of_other_types_and_merges_are_read() -> None:
    text = "base: &base {a: 1, b: 2}\nother: &other {c: 3}\nx:\n  <<: *base\n  <<: *other\n  a: 4\n1: 1\n'1': 2\n"
    document = decode_yaml(text)
    assert document["x"] == {"a": 4, "b": 2, "c": 3}
    assert (document[1], document["1"]) == (1, 2)


def test_a_repeated_key_of_settings_is_refused_and_that_of_another_tool_s_output_read() -> None:
    text = '{"a": [{"b": 1, "b": 2}]}'
    with pytest.raises(FormatError, match=r"^an object has the key 'b' 2 times$"):
        decode_settings_json(text)
    assert decode_foreign_json(text) == {"a": [{"b": 2}]}  # as Kineto's args have them


@pytest.mark.parametrize(
    "read",
    [read_config, read_accelerate_config, lambda path: read_settings(path, "settings"), lambda path: find(str(path))],
    ids=["config of a launch", "accelerate", "settings", "model"],
)
def test_readers_of_settings_name_the_file_and_the_key(tmp_path: Path, read: object) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "llama", "num_hidden_layers": 4, "num_hidden_layers": 40}')
    with pytest.raises(InputError, match=r"config\.json\b.*key 'num_hidden_layers' 2 times"):
        read(str(path) if read is read_accelerate_config else path)  # type: ignore[operator]
