"""What the emulated device is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from presim.errors import InputError
from presim.hardware import catalogue
from presim.hardware.device_config import device_config

HEADER = Path(__file__).parents[3] / "src" / "presim" / "shim" / "core" / "config.h"


def parsed(text: str) -> dict[str, str]:
    return dict(line.split(" ", 1) for line in text.splitlines())


def test_the_keys_are_the_fields_of_the_device_that_reads_them() -> None:
    body = re.search(r"struct DeviceConfig \{(.*?)\};", HEADER.read_text(encoding="utf-8"), re.DOTALL)
    assert body is not None
    fields = re.findall(r"(\w+) = [^,;]+[,;]", re.sub(r"//.*", "", body.group(1)))
    assert set(parsed(device_config(catalogue.gpu("h100"), 8))) == set(fields)


def test_an_h100_is_described_as_cuda_reports_it() -> None:
    values = parsed(device_config(catalogue.gpu("h100"), 8))
    assert values["name"] == "NVIDIA H100 80GB HBM3"
    assert values["count"] == "8"
    assert (values["compute_major"], values["compute_minor"], values["sm_count"]) == ("9", "0", "132")
    assert values["clock_khz"] == "1980000"
    assert values["shared_per_block_optin"] == "232448"
    assert values["memory_bytes"] == str(81079 << 20)
    assert values["power_mw"] == "700000"


@pytest.mark.parametrize("name", [gpu.id for gpu in catalogue.gpus() if gpu.vendor == "nvidia"])
def test_every_value_but_the_name_is_a_whole_number(name: str) -> None:
    values = parsed(device_config(catalogue.gpu(name), 1))
    assert all(value.isdigit() for key, value in values.items() if key != "name")


def test_a_gpu_that_cannot_be_emulated_is_refused() -> None:
    with pytest.raises(InputError) as raised:
        device_config(catalogue.gpu("mi300x"), 8)
    assert str(raised.value) == (
        "mi300x cannot be emulated: name one of NVIDIA's with --gpu and keep the trace with --save DIR, then "
        "`presim simulate DIR --gpu mi300x`."
    )
