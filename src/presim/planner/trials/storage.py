"""Store finished trials in an Optuna study, so that an interrupted search can be resumed.

A study is a journal file (any name), ``sqlite:///FILE``, or another URL that SQLAlchemy supports. Each finished trial
is one append or transaction. Illegal and pruned points are not stored; a resumed search derives them again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

import presim
from presim.errors import InputError
from presim.planner.search_request import SearchRequest
from presim.planner.study import CapturedTrial
from presim.planner.trials.trial import Point, Trial, key
from presim.system.files import FormatError, check_folder, decode_json, read_bytes

if TYPE_CHECKING:
    import optuna

NAME = "presim search"
_MARK = "presim"  # attribute of the study: fingerprint of its request; attribute of each trial: the trial
_CLAIM = "searched by"
_CAPTURED = "captured"  # prefix of the study's attributes that store captures of its best plans
_CLAIM_S = 120.0  # seconds without a heartbeat after which a search on another machine counts as dead


class StudyStore:
    """The stored trials of a request."""

    def __init__(self, study: optuna.Study, request: SearchRequest, is_shared: bool) -> None:
        self._study, self._request, self._is_shared = study, request, is_shared
        self._claimed = 0.0
        self._known = {key(trial.point): trial for trial in _trials(study)}

    def __len__(self) -> int:
        return len(self._known)

    def find(self, point: Point) -> Trial | None:
        """The stored trial of a point; None if there is none."""
        return self._known.get(key(point))

    def add(self, trial: Trial) -> None:
        """Store a trial durably."""
        self._known[key(trial.point)] = trial
        self._study.add_trial(_frozen(trial, self._request))
        self.claim()

    def captured(self, name: str) -> CapturedTrial | None:
        """A stored capture of a plan; None if there is none."""
        text = self._study.user_attrs.get(f"{_CAPTURED} {name}")
        try:
            return decode_json(text, CapturedTrial) if isinstance(text, str) else None
        except FormatError as error:
            raise InputError(f"a capture in the study is damaged ({error}): name another study with --study") from error

    def add_captured(self, name: str, capture: CapturedTrial) -> None:
        """Store a capture durably."""
        self._study.set_user_attr(f"{_CAPTURED} {name}", msgspec.json.encode(capture).decode())
        self.claim()

    def claim(self) -> None:
        """Write a heartbeat for searches on other machines, which cannot see the file lock."""
        if self._is_shared and time.time() - self._claimed > _CLAIM_S / 4:
            self._claimed = time.time()
            self._study.set_user_attr(_CLAIM, {"host": os.uname().nodename, "pid": os.getpid(), "at": self._claimed})

    def release(self) -> None:
        """Remove the heartbeat, so that other searches may use the study."""
        if self._is_shared:
            self._study.set_user_attr(_CLAIM, None)


@contextlib.contextmanager
def open_study(request: SearchRequest) -> Iterator[StudyStore]:
    """Open and lock the study of a request while it is searched.

    Raises:
        InputError: Optuna is missing, or the study is damaged, of another search, or in use.
    """
    assert request.study is not None
    _check_optuna()
    path = _file_of(request.study)
    with contextlib.ExitStack() as stack:
        if path is not None:
            stack.enter_context(_locked(path))
        study = _study(request, path)
        store = StudyStore(study, request, is_shared=path is None)
        if path is None:
            _check_claim(request.study, study.user_attrs.get(_CLAIM))
            store.claim()
            stack.callback(store.release)
        yield store


def fingerprint(request: SearchRequest) -> dict[str, Any]:
    """Identify a request by everything that its trials depend on."""
    options = {name: value for name, value in request.options.items() if name not in ("save",)}
    settings = msgspec.json.encode(
        [request.command, *_space_file_parts(request), sorted((name, str(value)) for name, value in options.items())]
    )
    return {
        "format": 1,
        "presim": presim.__version__,
        "subject": request.subject,
        "job": hashlib.sha256(request.graph + settings).hexdigest()[:16],
        "space": request.space.digest(),
        "objectives": [objective.name for objective in request.objectives],
    }


def _space_file_parts(request: SearchRequest) -> list[Any]:
    """Parts of a request that come from a space file."""
    return [request.words] if request.words else []


def _check_optuna() -> None:
    try:
        import optuna
    except ImportError as error:
        raise InputError("a study needs Optuna: `pip install presim[search]`") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def _file_of(study: str) -> Path | None:
    """The file of a study; None for a database server."""
    if study.startswith("sqlite:///"):
        return Path(study.removeprefix("sqlite:///"))
    return None if "://" in study else Path(study)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[IO[bytes]]:
    """Open and lock the file, and repair what a killed search left incomplete."""
    check_folder(path.absolute().parent)
    if path.is_dir():
        raise InputError(f"cannot store a study in {path}: it is a folder; name a file")
    path.absolute().parent.mkdir(parents=True, exist_ok=True)
    try:
        file = path.open("ab+")
    except OSError as error:
        raise InputError(f"cannot open the study {path}: {error.strerror}; name another file") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError(
                f"another search is using the study {path}: wait for it, or name another file with --study"
            ) from error
        for stale_lock in (path.with_name(path.name + ".lock"),):  # Optuna's own lock, left by a killed process
            stale_lock.unlink(missing_ok=True)
        yield file


def _repair(path: Path) -> None:
    """Cut off an incomplete last line."""
    data = read_bytes(path, "name another file with --study")
    if data and not data.endswith(b"\n") and data.startswith(b"{"):
        os.truncate(path, data.rfind(b"\n") + 1)


def _study(request: SearchRequest, path: Path | None) -> optuna.Study:
    """Load or create the study."""
    import optuna

    try:
        study = optuna.create_study(
            storage=_storage(request.study or "", path),
            study_name=NAME,
            load_if_exists=True,
            directions=[objective.direction for objective in request.objectives],
        )
        attributes = study.user_attrs
        is_new = _MARK not in attributes and not study.get_trials(deepcopy=False)
    except InputError:
        raise
    except Exception as error:  # a damaged file raises errors of Optuna, JSON or SQLAlchemy
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"{request.study} cannot be read as a study ({type(error).__name__}: {first[:160]}); name another one"
        ) from error
    if is_new:
        study.set_user_attr(_MARK, fingerprint(request))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study.set_metric_names([objective.name for objective in request.objectives])  # for Optuna's dashboard
    else:
        _check_same(request, attributes.get(_MARK))
    return study


def _storage(name: str, path: Path | None) -> Any:
    import optuna
    from optuna.storages.journal import JournalFileBackend

    if path is None or name.startswith("sqlite:///"):
        try:
            return optuna.storages.RDBStorage(name)
        except ImportError as error:
            raise InputError(f"the study {name} needs a driver: {error}; install it, or name a file") from error
    _repair(path)
    return optuna.storages.JournalStorage(JournalFileBackend(str(path)))


def _check_same(request: SearchRequest, mark: Any) -> None:
    if not isinstance(mark, dict):
        raise InputError(f"{request.study} is a study of another program; name another one with --study")
    expected = fingerprint(request)
    differences = {
        "presim": "by presim {}, this is {}",
        "subject": "for {}, not {}",
        "job": "for another model, command or cluster ({}, not {})",
        "space": "for another space ({}, not {})",
        "objectives": "for {}, not {}",
    }
    for name, words in differences.items():
        if mark.get(name) != expected[name]:
            was = words.format(_listed(mark.get(name)), _listed(expected[name]))
            raise InputError(f"the study {request.study} was made {was}: name another one with --study")


def _listed(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _check_claim(study: str, claim: Any) -> None:
    claimed_s = claim.get("at") if isinstance(claim, dict) else None
    if not isinstance(claimed_s, int | float) or time.time() - claimed_s > _CLAIM_S:
        return
    is_same_host = claim.get("host") == os.uname().nodename
    if is_same_host and not Path(f"/proc/{claim.get('pid')}").exists():
        return
    raise InputError(
        f"another search is using the study {study} (process {claim.get('pid')} on {claim.get('host')}): wait for it, "
        "or name another study"
    )


def _trials(study: optuna.Study) -> list[Trial]:
    """The trials that presim stored.

    Raises:
        InputError: one of them cannot be read.
    """
    texts = [trial.user_attrs.get(_MARK) for trial in study.get_trials(deepcopy=False)]
    try:
        return [decode_json(text, Trial) for text in texts if isinstance(text, str)]
    except FormatError as error:
        raise InputError(f"a trial of the study is damaged ({error}): name another study with --study") from error


def _frozen(trial: Trial, request: SearchRequest) -> optuna.trial.FrozenTrial:
    """Convert a trial to Optuna's type, for Optuna's dashboard."""
    import optuna

    state = optuna.trial.TrialState.COMPLETE if trial.figures is not None else optuna.trial.TrialState.FAIL
    values = None
    if trial.figures is not None:
        objective_values = [objective.of(trial.figures, request.work) for objective in request.objectives]
        values = None if None in objective_values else [float(value) for value in objective_values if value is not None]
        state = state if values else optuna.trial.TrialState.FAIL
    varied = request.space.varied
    return optuna.create_trial(
        state=state,
        params={name: trial.point[name] for name in varied},
        distributions={name: optuna.distributions.CategoricalDistribution(values) for name, values in varied.items()},
        values=values,
        user_attrs={_MARK: msgspec.json.encode(trial).decode(), "fate": trial.fate, "words": trial.words},
    )
