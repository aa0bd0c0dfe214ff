"""Unity build: compile several C++ files as one, so that shared headers are parsed once."""

from __future__ import annotations

from pathlib import Path


def join(folder: Path, parts: int) -> list[Path]:
    """Replace all C++ files below ``folder`` by ``parts`` files that include them.

    The sources stay in their folders, because they include headers relative to them, but get another suffix than
    ``.cpp``, so that a build that compiles every ``.cpp`` compiles only the parts. Parts have similar sizes in bytes.

    Raises:
        ValueError: there are no C++ files, or ``parts`` is less than one.
    """
    sources = sorted(folder.rglob("*.cpp"))
    if not sources or parts < 1:
        raise ValueError(f"{len(sources)} C++ files in {folder} for {parts} parts")
    shares = _shares(sources, parts)
    renamed_sources = {source: source.rename(source.with_suffix(".cpp.inc")) for source in sources}
    return [
        _part(folder / f"part{i}.cpp", [renamed_sources[source] for source in share]) for i, share in enumerate(shares)
    ]


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
