"""The script's own process: hooks first, then the script, then one file that says how it ended.

Started by the launcher as ``python -m presim.capture.runner CONTROL``.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib.util
import os
import runpy
import sys
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec

from presim.capture.adapters import extensions, versions
from presim.capture.script import current_line
from presim.capture.script.background_load import BackgroundLoad
from presim.capture.script.control import Control, Outcome

if TYPE_CHECKING:
    from presim.capture.observers import AtImport, Observers

_ERROR_CHARACTERS = 1000  # of an exception's text, in the result; the whole of it is in the script's own output


class Runner:
    """One run of one script."""

    def __init__(self, control: Control) -> None:
        self.control = control
        self.outcome = Outcome()
        self.observers: Observers | None = None
        self.background = BackgroundLoad()

    def prepare(self, there: AtImport | None = None) -> None:
        """Imports torch and installs what observes it, but for what is ``there``."""
        from presim.capture.observers import Observers

        self.observers = Observers(self.control, self, there)

    def run_script(self) -> None:
        """Runs the script as ``python script`` or ``python -m module`` would; notes how it ended."""
        import torch

        try:
            self._run()
        except SystemExit as stop:
            self._exited(stop)
        except torch.OutOfMemoryError as error:
            self._raised(error, "out_of_memory")
        except KeyboardInterrupt:
            self._raised(KeyboardInterrupt("interrupted"), "raised", code=130)
        except BaseException as error:  # noqa: BLE001 - the script's own error, whatever it is
            self._raised(error, "raised")
        self.finish()

    def _run(self) -> None:
        control = self.control
        sys.argv = [control.script, *control.args]
        if control.module:
            sys.path.insert(0, os.getcwd())
            runpy.run_module(control.script, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(control.script).resolve().parent))
            runpy.run_path(control.script, run_name="__main__")

    def _exited(self, stop: SystemExit) -> None:
        if stop.code in (None, 0):
            return
        self.outcome.exit = "exited"
        self.outcome.code = stop.code if isinstance(stop.code, int) else 1
        self.outcome.error = f"the script exited with {stop.code!r}"
        if not isinstance(stop.code, int):
            print(stop.code, file=sys.stderr)

    def _raised(self, error: BaseException, how: str, code: int = 1) -> None:
        from presim.capture.adapters import sanitizer

        _print_own_traceback(error, f"rank {self.control.rank}:\n" if len(self.control.present) > 1 else "")
        self.outcome.exit = how
        self.outcome.code = code
        last = traceback.format_exception_only(error)[-1].strip()
        last = last if len(last) <= _ERROR_CHARACTERS else last[:_ERROR_CHARACTERS] + " …"
        if found := sanitizer.explain(error):
            last = found
            line = current_line.raising_line(error)
            self.outcome.misuse = (f"Misuse of the GPU at {line}: {found}.",)
        own = extensions.own_runtime(extensions.loaded_libraries())
        self.outcome.error = last + (versions.how_to_install(error) or extensions.explain(last, own))

    def stop(self) -> NoReturn:
        """After the last step that was asked for."""
        self.outcome.exit = "stopped"
        self.finish()

    def lack(self, peers: tuple[int, ...]) -> NoReturn:
        """A scout has met ranks that it cannot do without."""
        self.outcome.exit, self.outcome.peers = "peers", peers
        self.finish()

    def end_loop(self, sentence: str) -> NoReturn:
        """A loop waits for a value that never comes."""
        self.outcome.exit = "endless"
        self.outcome.error = sentence
        self.outcome.code = 1
        self.finish()

    def refuse(self, sentence: str) -> NoReturn:
        """The script does what cannot be followed."""
        self.outcome.exit, self.outcome.error, self.outcome.code = "unsupported", sentence, 1
        self.finish()

    def finish(self) -> NoReturn:
        """Write the outcome and end the process without unwinding what the script still holds.

        Python's finalisation is left out: threads of PyTorch that take the interpreter's lock while it shuts down
        abort the process now and then, after all output. Exit handlers of a script that came to its end do run.
        """
        if self.outcome.exit in ("ok", "exited"):
            threading._shutdown()  # type: ignore[attr-defined]  # joins the script's own threads, as at any exit
            atexit._run_exitfuncs()
        _leave_the_others()
        self._collect()
        path = Path(self.control.outcome)
        temporary = path.with_suffix(".tmp")
        with contextlib.suppress(OSError):  # the disk is full, which the launcher sees and says
            temporary.write_bytes(msgspec.json.encode(self.outcome))
            temporary.rename(path)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(self.outcome.code)

    def _collect(self) -> None:
        import torch

        outcome, observers = self.outcome, self.observers
        assert observers is not None, "test_run_command: a script runs after `prepare`"
        observers.steps.name_unfinished()
        outcome.steps = observers.steps.count
        outcome.neighbours = self.background.share()
        outcome.versions = {
            "torch": str(torch.__version__),
            "python": sys.version.split()[0],
            **versions.loaded_versions(),
        }
        outcome.facts = observers.facts()
        own = extensions.own_runtime(extensions.loaded_libraries())
        outcome.misuse = (*observers.misuse.sentences, *outcome.misuse)
        outcome.rank_reads = tuple(observers.rank_reads.places)
        outcome.notes = (*versions.untried(outcome.versions), *extensions.notes(own), *observers.notes())
        outcome.nccl = {name: value for name, value in sorted(os.environ.items()) if name.startswith("NCCL_")}
        if observers.read_backs is not None:
            outcome.read_backs = observers.read_backs.listed()
        outcome.used_cuda = torch.cuda.is_initialized()
        if outcome.used_cuda:
            stats = torch.cuda.memory_stats()
            outcome.allocator = {
                "peak_allocated_bytes": stats.get("allocated_bytes.all.peak", 0),
                "peak_reserved_bytes": stats.get("reserved_bytes.all.peak", 0),
            }


def _print_own_traceback(error: BaseException, heading: str) -> None:
    """The traceback as the script's author would see it, without the runner's frames; in one piece, as ranks print."""
    frame = error.__traceback__
    own = (__file__, runpy.__file__, "<frozen runpy>")
    while frame is not None and frame.tb_frame.f_code.co_filename in own:
        frame = frame.tb_next
    sys.stderr.write(heading + "".join(traceback.format_exception(type(error), error, frame)))


def _leave_the_others() -> None:
    """Ranks that run beside this one get what it owes them, and wait for nothing more."""
    with contextlib.suppress(OSError, AttributeError):  # no NCCL of ours here
        ctypes.CDLL("libnccl.so.2").presim_ranks_end()


def leave_package_path() -> None:
    """`python -m presim…` put the working directory into sys.path; the script gets its own first entry."""
    if sys.path and importlib.util.find_spec("presim") and sys.path[0] in ("", os.getcwd()):
        sys.path.pop(0)


def run(path: Path, there: AtImport | None = None) -> NoReturn:
    """Be one rank: what its control file says. ``there``: observers that this process has installed already."""
    current_line.answer(path.parent)
    control = msgspec.json.decode(path.read_bytes(), type=Control)
    sys.argv = [control.script]
    runner = Runner(control)
    runner.prepare(there)
    runner.run_script()
    raise AssertionError("run_script does not return")


def main() -> NoReturn:
    """Entry point; the only argument is the path of the control file."""
    leave_package_path()
    run(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
