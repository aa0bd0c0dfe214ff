"""Sentences for what the operating system refuses anywhere in a verb: names, folders, descriptors, memory."""

from __future__ import annotations

import errno
import re
import resource
from collections.abc import Sequence

from presim.errors import InputError

_LONGEST_WORD, _LONGEST = 400, 6000  # characters
FEWEST_DESCRIPTORS = 64  # `presim simulate` opens up to 30 at a time: libraries, files, pipes
_ADVICE = {
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ELOOP: "choose a path without a loop of links",
    errno.EMFILE: "raise the limit, e.g. `ulimit -n 1024`",
    errno.ENFILE: "close other programs",
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EROFS: "choose another folder",
    errno.EACCES: "check its permissions",
    errno.EPERM: "check its permissions",
    errno.ENOTDIR: "choose another path",
    errno.EISDIR: "name a file",
    errno.ENOMEM: "free some memory",
    errno.EAGAIN: "raise the limit on processes, e.g. `ulimit -u`",
    errno.EIO: "check the disk",
    errno.ESTALE: "check the network's file system",
}


def check(words: Sequence[str]) -> None:
    """Check what every verb needs. ``words``: its command line.

    Raises:
        InputError: too few files may be open, or a word holds a null byte, which no name of a file may.
    """
    for word in words:
        if "\0" in word:
            raise InputError(f"{word[:40]!r} holds a null byte; leave it out")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < FEWEST_DESCRIPTORS:
        if hard != resource.RLIM_INFINITY and hard < FEWEST_DESCRIPTORS:
            raise InputError(
                f"{soft} files may be open, and presim needs {FEWEST_DESCRIPTORS}: raise the limit with "
                "`ulimit -n 1024`"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (FEWEST_DESCRIPTORS, hard))


def brief(text: str) -> str:
    """A sentence that a terminal can show: names of thousands of characters within it are shortened."""
    if len(text) <= _LONGEST_WORD:
        return text
    from presim.system.files import shortened

    text = re.sub(rf"\S{{{_LONGEST_WORD},}}", lambda word: shortened(word[0]), text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"


def sentence(error: OSError | MemoryError) -> str:
    """What to tell the user of an error of the system; empty where it is presim's own."""
    from presim.system.files import shortened
    from presim.system.files.write import has_working_folder

    if isinstance(error, MemoryError):
        return "there is too little memory for this: lower the counts in it, or raise `ulimit -v`"
    if isinstance(error, FileNotFoundError) and not has_working_folder():
        return "the working directory was deleted; change to another one"
    advice = _ADVICE.get(error.errno or 0, "")
    if not advice:
        return ""
    subject = f"{shortened(error.filename)}: " if error.filename is not None else ""
    return f"{subject}{error.strerror}; {advice}"
