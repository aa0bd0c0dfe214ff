"""Sockets of servers for this machine alone."""

from __future__ import annotations

import socket

import pytest

from presim.errors import InputError
from presim.system.localhost import listening_socket


def test_a_port_that_is_taken_is_refused_with_the_option_to_change() -> None:
    with listening_socket(0, "--port") as first:
        port = first.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port} cannot be used: .*; choose another with --listen"):
            listening_socket(port, "--listen")


def test_a_client_may_connect_once_the_address_is_known() -> None:
    with listening_socket(0, "--port") as listening, socket.create_connection(listening.getsockname(), timeout=1):
        pass
