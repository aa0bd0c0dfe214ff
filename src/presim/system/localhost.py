"""Servers that only this machine can reach."""

from __future__ import annotations

import errno
import socket

from presim.errors import InputError

HOSTS = ("localhost", "127.0.0.1")  # names under which requests may address them


def listening_socket(port: int, option: str, host: str = HOSTS[1]) -> socket.socket:
    """A socket on this machine; port 0 chooses a free port. ``option`` is that of the command line, for the message.

    ``host``: another IPv4 address of this machine, or a name of it, under which others reach it.

    Raises:
        InputError: the port is taken or not allowed, or the address is none of this machine's.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()  # a client may come as soon as the address is told
    except OSError as error:
        listener.close()
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            raise InputError(
                f"{host} is no IPv4 address of this machine ({error.strerror}); use another --host"
            ) from error
        raise InputError(f"port {port} cannot be used: {error.strerror}; choose another with {option}") from error
    return listener
