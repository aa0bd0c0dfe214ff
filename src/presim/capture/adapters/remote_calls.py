"""Refuse torch.distributed.rpc: its agent connects processes by sockets of its own, which ranks here have not."""

from __future__ import annotations

from typing import Any, NoReturn

from presim.capture.script.after_import import when_imported


def install() -> None:
    """Install once the script imports torch.distributed.rpc."""
    when_imported("torch.distributed.rpc", _replace)


def _replace(module: Any) -> None:
    module.init_rpc = _refuse


def _refuse(*args: Any, **kwargs: Any) -> NoReturn:
    raise NotImplementedError(
        "presim does not emulate calls between processes (torch.distributed.rpc): use collectives, or send and receive"
    )
