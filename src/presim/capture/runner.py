"""Run the script in its own process: install the observers, run the script, write its outcome to a file.

The launcher starts this as ``python -m presim.capture.runner CONTROL``.
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
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec

from presim.capture.adapters import extensions, framework_versions
from presim.capture.script import current_line, multiprocess
from presim.capture.script.background_load import BackgroundLoad
from presim.capture.script.control import Control, ScriptOutcome

if TYPE_CHECKING:
    from presim.capture.observers import ImportObservers, Observers

_ERROR_CHARACTERS = 1000  # limit for an exception's text in the result; the script's own output has all of it


class Runner:
    """One run of one script."""

    def __init__(self, control: Control) -> None:
        self.control = control
        self.outcome = ScriptOutcome()
        self.observers: Observers | None = None
        self.background = BackgroundLoad()

    def prepare(self, installed: ImportObservers | None = None) -> None:
        """Import torch and install the observers except those in ``installed``."""
        from presim.capture.observers import Observers

        self.observers = Observers(self.control, self, installed)

    def run_script(self) -> None:
        """Run the script as ``python script`` or ``python -m module`` would, and record how it ended."""
        import torch

        try:
            self._run()
        except SystemExit as stop:
            self._record_exit(stop)
        except torch.OutOfMemoryError as error:
            self._record_error(error, "out_of_memory")
        except KeyboardInterrupt:
            self._record_error(KeyboardInterrupt("interrupted"), "raised", code=130)
        except BaseException as error:  # noqa: BLE001 - the script's own error, whatever it is
            self._record_error(error, "raised")
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

    def _record_exit(self, stop: SystemExit) -> None:
        if stop.code in (None, 0):
            return
        self.outcome.exit = "exited"
        self.outcome.code = stop.code if isinstance(stop.code, int) else 1
        self.outcome.error = f"the script exited with {stop.code!r}"
        if not isinstance(stop.code, int):
            print(stop.code, file=sys.stderr)

    def _record_error(self, error: BaseException, exit_kind: str, code: int = 1) -> None:
        from presim.capture.adapters import sanitizer

        _print_own_traceback(error, f"rank {self.control.rank}:\n" if len(self.control.present) > 1 else "")
        self.outcome.exit = exit_kind
        self.outcome.code = code
        last = traceback.format_exception_only(error)[-1].strip()
        last = last if len(last) <= _ERROR_CHARACTERS else last[:_ERROR_CHARACTERS] + " …"
        if misuse := sanitizer.explain(error):
            last = misuse
            line = current_line.raising_line(error)
            self.outcome.misuse = (f"Misuse of the GPU at {line}: {misuse}.",)
        extension_names = extensions.libraries_with_own_runtime(extensions.loaded_libraries())
        self.outcome.error = last + (
            framework_versions.how_to_install(error) or extensions.explain(last, extension_names)
        )

    def stop(self) -> NoReturn:
        """End after the last requested step."""
        self.outcome.exit = "stopped"
        self.finish()

    def stop_for_peers(self, peers: tuple[int, ...]) -> NoReturn:
        """End because a scout exchanges messages with ranks that do not run."""
        self.outcome.exit, self.outcome.peers = "peers", peers
        self.finish()

    def end_loop(self, sentence: str) -> NoReturn:
        """End because a loop waits for a value that never changes."""
        self.outcome.exit = "endless"
        self.outcome.error = sentence
        self.outcome.code = 1
        self.finish()

    def refuse(self, sentence: str) -> NoReturn:
        """End because the script uses something unsupported."""
        self.outcome.exit, self.outcome.error, self.outcome.code = "unsupported", sentence, 1
        self.finish()

    def finish(self) -> NoReturn:
        """Write the outcome and end the process without Python's finalisation.

        PyTorch threads that take the interpreter lock during finalisation sometimes abort the process, after all
        output. Exit handlers still run if the script reached its end.
        """
        if self.outcome.exit in ("ok", "exited"):
            threading._shutdown()  # type: ignore[attr-defined]  # joins the script's threads, as at any exit
            atexit._run_exitfuncs()
        _finish_exchanges()
        self._collect()
        with contextlib.suppress(Exception):  # finalisers are of the script, too; its outcome stands
            multiprocess.end_workers()
        path = Path(self.control.outcome)
        temporary = path.with_suffix(".tmp")
        with contextlib.suppress(OSError):  # the disk is full, which the launcher reports
            temporary.write_bytes(msgspec.json.encode(self.outcome))
            temporary.rename(path)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(self.outcome.code)

    def _collect(self) -> None:
        import torch

        from presim.capture.distributed import world

        outcome, observers = self.outcome, self.observers
        assert observers is not None, "test_run_command: a script runs after `prepare`"
        observers.steps.categorise_unfinished()
        outcome.end = observers.step_observer.finish()
        outcome.sample = observers.scopes.batch.sample
        outcome.neighbours, outcome.cpu_s = self.background.share(), time.process_time()
        outcome.versions = {
            "torch": str(torch.__version__),
            "python": sys.version.split()[0],
            **framework_versions.loaded_versions(),
        }
        outcome.facts = observers.facts()
        extension_names = extensions.libraries_with_own_runtime(extensions.loaded_libraries())
        outcome.misuse = (*observers.misuse.sentences, *outcome.misuse)
        outcome.rank_reads = observers.rank_reads.all_places()
        outcome.notes = (
            *framework_versions.untested_version_notes(outcome.versions),
            *extensions.notes(extension_names),
            *observers.notes(),
        )
        outcome.nccl = {name: value for name, value in sorted(os.environ.items()) if name.startswith("NCCL_")}
        if observers.read_backs is not None:
            outcome.read_backs = observers.read_backs.records()
        outcome.has_process_group = world.has_joined()
        outcome.used_cuda = torch.cuda.is_initialized()
        if outcome.used_cuda:
            stats = torch.cuda.memory_stats()
            outcome.allocator = {
                "peak_allocated_bytes": stats.get("allocated_bytes.all.peak", 0),
                "peak_reserved_bytes": stats.get("reserved_bytes.all.peak", 0),
            }


def _print_own_traceback(error: BaseException, heading: str) -> None:
    """Print the traceback without the runner's frames, in one write because ranks print concurrently."""
    frame = error.__traceback__
    runner_files = (__file__, runpy.__file__, "<frozen runpy>")
    while frame is not None and frame.tb_frame.f_code.co_filename in runner_files:
        frame = frame.tb_next
    sys.stderr.write(heading + "".join(traceback.format_exception(type(error), error, frame)))


def _finish_exchanges() -> None:
    """Post what other ranks still expect from this one, and stop waiting for them."""
    with contextlib.suppress(OSError, AttributeError):  # our NCCL is not loaded
        ctypes.CDLL("libnccl.so.2").presim_ranks_end()


def leave_package_path() -> None:
    """Remove the working directory, which `python -m presim…` put first in sys.path; the script adds its own entry."""
    if sys.path and importlib.util.find_spec("presim") and sys.path[0] in ("", os.getcwd()):
        sys.path.pop(0)


def run(path: Path, installed: ImportObservers | None = None) -> NoReturn:
    """Run one rank as its control file describes. ``installed``: observers that this process has installed already."""
    current_line.enable_stack_dumps(path.parent)
    multiprocess.keep_files_in(path.parent)
    control = msgspec.json.decode(path.read_bytes(), type=Control)
    sys.argv = [control.script]
    runner = Runner(control)
    runner.prepare(installed)
    runner.run_script()
    raise AssertionError("run_script does not return")


def main() -> NoReturn:
    """Entry point; the only argument is the path of the control file."""
    leave_package_path()
    run(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
