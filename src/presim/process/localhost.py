"""Servers that only this machine can reach."""

from __future__ import annotations

import socket

from presim.errors import InputError

HOSTS = ("localhost", "127.0.0.1")  # names under which requests may address them


def listening_socket(port: int, option: str) -> socket.socket:
    """A socket on this machine; port 0 chooses a free port. ``option`` is that of the command line, for the message.

    Raises:
        InputError: the port is taken or not allowed.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOSTS[1], port))
    except OSError as error:
        listener.close()
        raise InputError(f"port {port} cannot be used: {error.strerror}; choose another with {option}") from error
    return listener
