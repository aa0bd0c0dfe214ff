#!/usr/bin/env python3
"""Print the folder of the CUDA headers that the build requires: nvidia/cu13/include of some place on sys.path."""

from __future__ import annotations

import site
import sys
from pathlib import Path

NEEDED = ("cuda.h", "cuda_runtime_api.h", "crt/host_defines.h")


def main() -> int:
    """Search where this interpreter finds packages."""
    search_paths = [*sys.path, *site.getsitepackages(), site.getusersitepackages()]
    for search_path in search_paths:
        folder = Path(search_path or ".") / "nvidia" / "cu13" / "include"
        if all((folder / name).exists() for name in NEEDED):
            print(folder.resolve())
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
