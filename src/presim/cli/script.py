"""Error handling of scripts in the checkout: invalid input ends in one sentence and exit code 2, as in verbs."""

from __future__ import annotations

import contextlib
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from presim.errors import PresimError


@contextlib.contextmanager
def sentences() -> Iterator[None]:
    """Context for a script: user errors end it with one line, bugs keep their traceback."""
    try:
        yield
    except PresimError as error:
        _leave(str(error))
    except ImportError as error:
        if (error.name or "").startswith("presim"):
            raise
        _leave(f"a required package cannot be imported: {error}")
    except OSError as error:
        if error.filename is None:
            raise
        _leave(f"{error.filename}: {error.strerror}")


def cpu_s() -> float:
    """CPU time of this process and its children that ended, s."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _leave(sentence: str) -> NoReturn:
    sys.stderr.write(f"{Path(sys.argv[0]).name}: {sentence}\n")
    raise SystemExit(2)
