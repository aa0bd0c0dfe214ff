"""Parse command lines of vLLM with its own parsers: JSON lists of words, one a line, from standard input."""

from __future__ import annotations

import json
import sys


def main() -> None:
    import vllm.platforms as platforms
    from vllm.platforms.cpu import CpuPlatform

    platforms._current_platform = CpuPlatform()  # defaults of options need one; no engine is started
    from vllm.benchmarks.serve import add_cli_args
    from vllm.entrypoints.common.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    serve = make_arg_parser(FlexibleArgumentParser())
    bench = FlexibleArgumentParser()
    add_cli_args(bench)
    for line in sys.stdin:
        words = json.loads(line)
        parser, rest = (serve, words[2:]) if words[:2] == ["vllm", "serve"] else (bench, words[3:])
        parsed = parser.parse_args(rest)
        print(json.dumps({"model": getattr(parsed, "model_tag", None) or parsed.model, "words": len(rest)}))


if __name__ == "__main__":
    main()
