"""Read C prototypes out of preprocessed headers: which argument is of what kind, and which is an out-parameter.

Not a C parser: the CUDA headers are regular enough for splitting at ';' and resolving typedefs by pattern.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

INTEGERS = {
    "char": 1,
    "short": 2,
    "int": 4,
    "unsigned": 4,
    "long": 8,
    "long long": 8,
    "_Bool": 1,
}
# Arguments that name arrays in device memory or arrays the caller filled in: never written by a stub.
ARRAYS = re.compile(
    r"^args$|kernelParams|extra|RowPtr|ColInd|RowInd|ColPtr|ipiv|Array|dim[AP]?$|stride|pad|sizes?A$|nembed|^n$",
    re.IGNORECASE,
)
FUNCTION = re.compile(r"^\s*((?:extern )?[\w\s\*]+?[\s\*])(\w+)\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)\s*$")
CREATES = re.compile(r"Create|Init|Open|Alloc|Begin|Instantiate|Retain|Clone|Split|Load|Import")


@dataclass(frozen=True)
class Prototype:
    """The facts a safe stub needs."""

    name: str
    kinds: str  # a letter (or {bytes}) per argument, see generate_stubs.py
    outs: tuple[str, ...]  # "position:bytes" or "position:new"
    returns: str  # "" for a status

    def line(self) -> str:
        """As written in a symbols file."""
        return f"{self.name} {self.kinds or '-'} {','.join(self.outs) or '-'} {self.returns}".rstrip()


class Types:
    """Typedefs of one translation unit, resolved to scalars and pointers."""

    def __init__(self, text: str) -> None:
        self.pointers = set(re.findall(r"typedef\s+[\w\s]+?\*\s*(?:const\s+)?(\w+)\s*;", text))
        self.pointers |= set(re.findall(r"typedef[^;{}]*?\(\s*\*\s*(\w+)\s*\)\s*\(", text))
        self.enums = set(re.findall(r"typedef\s+enum\s*\w*\s*\{[^}]*\}\s*(\w+)\s*;", text))
        pairs = re.findall(r"typedef\s+((?:enum |struct |union |\w+\s+)*\w+)\s+(\w+)\s*;", text)
        self.aliases = {new: old for old, new in pairs}

    def scalar_bytes(self, name: str) -> int:
        """Size of an integer type, 8 of a pointer, 0 of anything else."""
        name = " ".join(w for w in name.split() if w not in ("const", "volatile", "signed", "__restrict__"))
        if name.startswith("enum ") or name in self.enums:
            return 4
        if "*" in name or name in self.pointers:
            return 8
        words = [w for w in name.split() if w != "unsigned"] or ["unsigned"]
        core = " ".join(words).removesuffix(" int") if words != ["int"] else "int"
        if core in INTEGERS:
            return INTEGERS[core]
        return self.scalar_bytes(self.aliases[name]) if name in self.aliases and self.aliases[name] != name else 0

    def kind(self, argument: str, sizeof: dict[str, int]) -> str:
        """Letter of an argument passed by value or pointer."""
        if "*" in argument or "[" in argument:
            return "p"
        type_name = strip_name(argument, self)
        base = self.resolve(type_name)
        if base in ("float", "double"):
            return base[0]
        if base in ("float2", "cuComplex", "cuFloatComplex", "double2", "cuDoubleComplex"):
            return "c" if "D" not in base and "d" not in base else "z"
        size = self.scalar_bytes(type_name)
        if size:
            return "p" if type_name in self.pointers else "i"
        return f"{{{sizeof.get(type_name, 0)}}}"

    def resolve(self, name: str) -> str:
        """Follow aliases to the end."""
        seen: set[str] = set()
        while name in self.aliases and name not in seen:
            seen.add(name)
            name = self.aliases[name].removeprefix("struct ")
        return name


def strip_name(argument: str, types: Types) -> str:
    """The type of 'type name' (the name may be missing)."""
    words = [w for w in argument.split() if w not in ("const", "volatile")]
    has_no_name = len(words) == 1 or (words[0] in ("struct", "enum") and len(words) == 2)
    if has_no_name or (
        types.scalar_bytes(" ".join(words)) and words[-1] in ("int", "long", "char", "short", "unsigned")
    ):
        return " ".join(words)
    return " ".join(words[:-1])


def out_parameter(position: int, argument: str, function: str, types: Types) -> str | None:
    """How a stub must fill this argument, if at all."""
    match = re.match(r"^(.*?)\*\s*(?:const\s*)?(?:__restrict__\s*)?(\w*)$", argument.strip())
    if not match or "const" in match.group(1).split():
        return None
    base, name = match.group(1).strip(), match.group(2)
    size = types.scalar_bytes(base)
    is_handle = size == 8 and ("*" in base or types.resolve(base) in types.pointers or base in types.pointers)
    opaque = "void" not in base
    if is_handle and not (ARRAYS.search(name) and not opaque):
        return f"{position}:new" if opaque and CREATES.search(function) else f"{position}:8"
    if size < 4 or ARRAYS.search(name):
        return None
    return f"{position}:{size}"


def compile_c(source: str, includes: list[Path], flags: list[str]) -> str:
    """What gcc writes for this source; empty where it is not valid C."""
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "nv").mkdir()  # <nv/target> comes with another package; only macros for device code
        (Path(scratch) / "nv/target").write_text("#define NV_IF_ELSE_TARGET(a, b, c)\n#define NV_IF_TARGET(...)\n")
        command = ["gcc", "-x", "c", "-w", "-o", "-", *(f"-I{d}" for d in (*includes, scratch)), *flags, "-"]
        return subprocess.run(command, check=False, input=source, capture_output=True, text=True).stdout


def preprocess(headers: tuple[str, ...], includes: list[Path], defines: list[str]) -> str:
    """One translation unit of these headers (those that exist), without attributes."""
    existing_headers = [h for h in headers if any((d / h).exists() for d in includes)]
    source = "#include <stddef.h>\n#include <stdint.h>\n" + "".join(f"#include <{h}>\n" for h in existing_headers)
    text = compile_c(source, includes, ["-E", "-P", *(f"-D{d}" for d in defines)])
    text = re.sub(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)", " ", text)
    return re.sub(r"\s+", " ", text)


def sizes_of(names: set[str], headers: tuple[str, ...], includes: list[Path]) -> dict[str, int]:
    """sizeof of the structs that are passed by value, asked of the compiler."""
    existing_headers = [h for h in headers if any((d / h).exists() for d in includes)]
    result = {}
    for name in sorted(names):
        source = "#include <stddef.h>\n" + "".join(f"#include <{h}>\n" for h in existing_headers)
        source += f"char presim_probe[sizeof({name})] = {{1}};\n"
        size = re.search(r"\.size\s+presim_probe, (\d+)", compile_c(source, includes, ["-S"]))
        if size:
            result[name] = int(size.group(1))
    return result


def returned(kind: str) -> str:
    """What a stub returns: a status unless the prototype says otherwise."""
    words = kind.replace("extern", "").replace('"C"', "").split()
    text = " ".join(words)
    if "char *" in text or "char*" in text:
        return "text"
    return {"void": "void", "double": "double", "float": "float"}.get(text, "")


def read(headers: tuple[str, ...], includes: list[Path]) -> dict[str, Prototype]:
    """Every prototype, under current, earlier (_v1) and per-thread-stream names."""
    result: dict[str, Prototype] = {}
    for defines in (["CUDA_API_PER_THREAD_DEFAULT_STREAM"], ["__CUDA_API_VERSION_INTERNAL"], []):
        text = preprocess(headers, includes, defines)
        types = Types(text)
        parsed = []
        for statement in re.split(r"[;{}]", text):
            match = FUNCTION.match(statement)
            if match and not {"typedef", "return", "else"} & set(match.group(1).split()):
                arguments = [a.strip() for a in match.group(3).split(",") if a.strip() not in ("", "void")]
                parsed.append((match.group(2), match.group(1), arguments))
        by_value = {strip_name(a, types) for _, _, args in parsed for a in args if types.kind(a, {}) == "{0}"}
        sizeof = sizes_of({n for n in by_value if re.fullmatch(r"(struct )?\w+", n)}, headers, includes)
        for name, kind, arguments in parsed:
            outs = (out_parameter(i, a, name, types) for i, a in enumerate(arguments))
            kinds = "".join(types.kind(a, sizeof) for a in arguments)
            result[name] = Prototype(name, kinds, tuple(o for o in outs if o), returned(kind))
    return result
