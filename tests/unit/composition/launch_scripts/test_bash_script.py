"""Following bash to its launch: each script's words are those that bash itself prints."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.composition.launch_scripts.bash_script import Script
from presim.composition.launch_scripts.bash_values import MARK
from presim.errors import InputError

_LAUNCH = "--a 1 --b 2 --c 3 --d"
_BODIES = {
    "arrays": 'A=(--x 1 "--y 2")\nA+=(--z)  # last\npython t.py ${A[@]} "${A[@]}" ' + _LAUNCH,
    "defaults": 'N=${N:-4}; M=${N:+set}; python t.py --n $N --m "$M" --u "${U:-a b}" ' + _LAUNCH,
    "sums": "TP=8; WS=$((TP * $1 / 2)); O=$(( ($TP > 1) ? 1 : 0 )); python t.py --w $WS --o $O " + _LAUNCH,
    "if": 'if [ $1 = 5 ] && [ -n "$2" ]; then V=no; elif [[ $1 -ge 3 && "$2" == k* ]]; then V=yes\nelse V=other; fi\n'
    "python t.py --v $V " + _LAUNCH,
    "nested if": "for S in a b; do if [ $S = b ]; then if [ $1 -lt 9 ]; then V=$S; fi; fi; done; python t.py --v $V "
    + _LAUNCH,
    "case": 'case "$2" in\n  x|key) V=1 ;;\n  *) V=2 ;;\nesac\npython t.py --v $V ' + _LAUNCH,
    "eval": 'O=" --f \'([1]*4)\' \\\n --g"\nC="python t.py $O ' + _LAUNCH + '"\neval $C',
    "loop": "while [[ $# -gt 0 ]]; do case $1 in 4) V=four; shift ;; *) W=$1; shift ;; esac; done\n"
    "python t.py --v $V --w $W " + _LAUNCH,
    "function": "go() { local K=$1; python t.py --k $K " + _LAUNCH + "; }\ngo 7",
    "shell": 'X=3; bash -c "python t.py --x ${X} ' + _LAUNCH + '"',
    "group": "false && { echo no; } || Y=2; true || { exit 1; }; python t.py --y $Y " + _LAUNCH,
    "quotes": "python t.py --q 'a  b' --r \"it's\" --s a\\ b '' " + _LAUNCH,
}


def _followed(body: str, *words: str) -> Script:
    script = Script({}, words, Path())
    script.follow(body)
    return script


@pytest.mark.skipif(shutil.which("bash") is None, reason="compares with bash")
@pytest.mark.parametrize("body", _BODIES.values(), ids=_BODIES)
def test_words_are_those_of_bash(body: str) -> None:
    prints = 'python() { printf "%s\\n" python "$@"; exit 0; }; export -f python\n'
    ended = subprocess.run(["bash", "-c", prints + body, "run", "4", "key"], capture_output=True, text=True, check=True)
    assert _followed(body, "4", "key").launch == ended.stdout.split("\n")[:-1]


def test_what_only_running_would_tell_is_false_and_named() -> None:
    script = _followed("if [ ! -f data ]; then exit 1; fi\npython t.py --n $(nproc) --m $M " + _LAUNCH)
    assert script.undecided == ["[ ! -f data ]"]
    assert [MARK.fullmatch(word) is not None for word in script.launch[3:6:2]] == [True, True]


def test_a_here_document_and_a_sourced_file_are_followed(tmp_path: Path) -> None:
    (tmp_path / "sizes.sh").write_text("TP=4\n")
    script = Script({}, (), tmp_path)
    script.follow(f'. "$(pwd)/sizes.sh"\nsbatch <<EOF\nsrun bash -c "python t.py --tp $TP {_LAUNCH}"\nEOF\n')
    assert script.launch[:4] == ["python", "t.py", "--tp", "4"]


def test_a_script_that_ends_says_why() -> None:
    with pytest.raises(InputError, match="usage: run SIZE"):
        _followed("if [ $# -lt 1 ]; then echo 'usage: run SIZE'; exit 1; fi\npython t.py " + _LAUNCH)
    with pytest.raises(InputError, match="not closed"):
        _followed("A='x\npython t.py")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("f() { f; }\nf", "calls or reads itself"),
        ("source own.sh", "calls or reads itself"),
        ("for x in a", "does not end"),
        ("for x in a; done", "not bash"),
        ("x=ab\nwhile true; do x=$x$x; done", "grows beyond 1,000,000 characters"),
        ("a=(b c)\nwhile true; do a+=(${a[@]} ${a[@]}); done", "grows beyond 100,000 words"),
    ],
)
def test_a_script_that_cannot_be_followed_ends_in_a_sentence(script: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "own.sh").write_text(script)
    with pytest.raises(InputError, match=words):
        Script({}, [], tmp_path).follow(script)


PIECES = st.sampled_from(
    [
        "if",
        "then",
        "else",
        "fi",
        "for\tx\tin",
        "do",
        "done",
        "while",
        "case",
        "esac",
        ")",
        "(",
        "{",
        "}",
        ";;",
        ";",
        "\n",
        "$x",
        "${x[@]}",
        "${x:-",
        "$((",
        "))",
        '"',
        "'",
        "`",
        "\\",
        "a=",
        "b+=(",
        "[[",
        "]]",
        "&&",
        "||",
        "!",
        "<<E",
        "E",
        "f()",
        "eval",
        "shift",
        "python\ta.py",
        "--b\t1",
        "#",
        "-z",
        "=",
        "3",
        "%",
    ]
)


@given(st.lists(PIECES, max_size=25), st.sampled_from([" ", ""]))
def test_whatever_a_script_holds_it_is_followed_or_refused(pieces: list[str], space: str) -> None:
    with contextlib.suppress(InputError):
        Script({}, ["w"], Path()).follow(space.join(pieces))
