"""``--json --html --quiet``: how a verb delivers a result that is shown in one piece."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

from presim.cli.output_files import html_option, json_option, quiet_option

_NAMES = ("json_file", "html", "quiet")


def report_options(function: Any) -> Any:
    """``--json FILE``, ``--html FILE`` and ``-q``; ``--json`` as the last word prints, as ``--json -`` does."""
    for option in (quiet_option, html_option, json_option):
        function = option(function)
    return function


@dataclasses.dataclass(frozen=True)
class Report:
    """Where the result goes, from `report_options`."""

    json_file: str | None = None
    html: str | None = None
    quiet: bool = False

    @classmethod
    def pop_from(cls, options: dict[str, Any]) -> Report:
        """Remove the options from a verb's options and return them.

        Raises:
            InputError: a file cannot be written.
        """
        from presim.system.files import check_writable

        report = cls(**{name: options.pop(name) for name in _NAMES})
        for path in (report.json_file, report.html):
            if path not in (None, "-"):
                check_writable(str(path))
        return report

    def deliver(self, kind_name: str, content: Any, encoded: bytes | str, partial: str = "") -> None:
        """Write the files, and print the report unless JSON goes to standard output.

        ``kind_name``: of `presim.studies.saved_results.kinds`, whose functions show the content; ``encoded``: its JSON.
        """
        from presim.studies.saved_results import show_result
        from presim.studies.saved_results.kinds import KINDS
        from presim.studies.saved_results.read_result import SavedResult
        from presim.system.files import write_file

        document = encoded if isinstance(encoded, bytes) else f"{encoded.rstrip()}\n".encode()
        kind = next(kind for kind in KINDS if kind.name == kind_name)
        result = SavedResult(Path(self.json_file or kind_name), kind, content, partial)
        if self.html:
            write_file(self.html, show_result.page(result).encode())
        if self.json_file == "-":
            sys.stdout.buffer.write(document)
        elif self.json_file:
            write_file(self.json_file, document)
        if not self.quiet and self.json_file != "-":
            show_result.write(result)
