"""Which reports of misuse are kept."""

from __future__ import annotations

from collections.abc import Callable

from presim.capture.script.misuse import Misuse


class Hook:
    """Keeps the listener."""

    def set_misuse_callback(self, listener: Callable[[str], None]) -> None:
        self.tell = listener


def test_each_kind_is_kept_once_per_line_up_to_twenty() -> None:
    hook, misuse = Hook(), Misuse()
    misuse.install(hook)  # type: ignore[arg-type]
    for _ in range(3):
        hook.tell("a copy of 8 bytes")
    first, *more = misuse.sentences
    assert (first.startswith(f"Misuse of the GPU at {__file__}:"), first.endswith(": a copy of 8 bytes."), more) == (
        True,
        True,
        [],
    )
    for size in range(100):
        hook.tell(f"a copy of {size} bytes")
    assert len(misuse.sentences) == 20
