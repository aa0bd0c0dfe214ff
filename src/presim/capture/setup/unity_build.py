"""Unity build: compiles several C++ files as one, so that shared headers are parsed once."""

from __future__ import annotations

from pathlib import Path


def join(folder: Path, parts: int) -> list[Path]:
    """Have ``parts`` C++ files below ``folder`` in place of all that are there, each of which includes its share.

    The files keep their folders, since they include each other's headers from there, but no longer end in ``.cpp``: a
    build that takes every such file takes the parts. Shares are of like length in bytes, in the order of names.

    Raises:
        ValueError: there are no C++ files, or less than one part is asked for.
    """
    sources = sorted(folder.rglob("*.cpp"))
    if not sources or parts < 1:
        raise ValueError(f"{len(sources)} C++ files in {folder} for {parts} parts")
    shares = _shares(sources, parts)
    moved = {source: source.rename(source.with_suffix(".cpp.inc")) for source in sources}
    return [_part(folder / f"part{i}.cpp", [moved[source] for source in share]) for i, share in enumerate(shares)]


def _shares(sources: list[Path], parts: int) -> list[list[Path]]:
    shares: list[list[Path]] = [[] for _ in range(min(parts, len(sources)))]
    lengths = [0] * len(shares)
    for source in sorted(sources, key=lambda path: -path.stat().st_size):
        shortest = lengths.index(min(lengths))
        shares[shortest].append(source)
        lengths[shortest] += source.stat().st_size
    return [sorted(share) for share in shares]


def _part(path: Path, sources: list[Path]) -> Path:
    path.write_text("".join(f'#include "{source.relative_to(path.parent).as_posix()}"\n' for source in sources))
    return path
