"""Where packages are installed: in the environment, in the system's below it, for the user alone, or by a ``.pth``."""

from __future__ import annotations

import os
import site
import sys
import sysconfig

_NAMES = ("site-packages", "dist-packages")


def package_folders() -> tuple[str, ...]:
    """The folders of installed packages, each with a final slash; those of this environment first."""
    folders = [*(sysconfig.get_path(name) for name in ("purelib", "platlib")), *site.getsitepackages()]
    folders.append(site.getusersitepackages())
    folders += [entry for entry in sys.path if os.path.basename(entry.rstrip("/")) in _NAMES]
    return tuple(dict.fromkeys(folder.rstrip("/") + "/" for folder in folders))


PACKAGE_FOLDERS = package_folders()


def without_package_folder(file: str) -> str:
    """The path of a file below the folder that its package is installed in; the whole path outside of them."""
    return next((file.removeprefix(folder) for folder in PACKAGE_FOLDERS if file.startswith(folder)), file)
