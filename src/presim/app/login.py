"""The login token of an app, and the names under which it may be addressed."""

from __future__ import annotations

import re
import secrets
import socket
from pathlib import Path

from presim.errors import InputError
from presim.system.files import read_text
from presim.system.localhost import HOSTS

_TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,200}")  # stands in an address as it is
_ALL = "0.0.0.0"
_HOW = "create one with: python -c 'import secrets; print(secrets.token_urlsafe(24))' > token"


def read_token(host: str | None, file: Path | None) -> str:
    """The token of a file, else a new one.

    Raises:
        InputError: others may reach the app and no file is named, or the file holds no token.
    """
    if file is None:
        if host is not None and host not in HOSTS:
            raise InputError(f"--host {host} lets others in, and needs a login token: add --token-file FILE; {_HOW}")
        return secrets.token_urlsafe(24)
    token = read_text(file, _HOW).strip()
    if not _TOKEN.fullmatch(token):
        raise InputError(
            f"{file} holds no token: at least 16 letters, digits, dots, - and _ are needed, not {len(token)} "
            f"characters; {_HOW}"
        )
    return token


def allowed_hosts(host: str | None) -> tuple[str, ...]:
    """Names that requests may address the server by; the last is that of the printed address."""
    if host is None:
        return HOSTS
    if host != _ALL:
        return (*HOSTS, host)
    name = socket.gethostname()
    return (*HOSTS, *_addresses(name), socket.getfqdn(), name)


def _addresses(name: str) -> tuple[str, ...]:
    try:
        return tuple(socket.gethostbyname_ex(name)[2])
    except OSError:  # the machine's name resolves to nothing
        return ()
