"""Compares the placement that presim ranks first with the fastest measured one, on published sweeps.

    python validation/rl_placements.py NEMO_RL VERL [--only TEXT]

NEMO_RL is the folder of NeMo RL's performance recipes (v0.7.0, examples/configs/recipes/llm/performance), VERL verl's
verl/experimental (commit 1dda039b). `rl_placements.csv` names the recipe of each published step. Placements are
simulated on two engines, as a search looks at them. Where no length is published, each sweep is repeated with two
means, which are not fitted, and one response of a hundred is as long as the recipe allows. Writes
`results/rl-placements.md` and `.json`; other sweeps that are there stay.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from choices import Group, Run
from presim.cli.script import sentences
from presim.errors import InputError
from presim.hardware.cluster_choice import choose_cluster
from presim.post_training.build import build_job
from presim.post_training.recipes.recipe_request import read_recipe
from presim.post_training.rl_answer import answer
from presim.post_training.rl_loop import simulate
from presim.post_training.rl_request import RlRequest
from presim.post_training.sampled_engines import sampled
from presim.post_training.shared_parts import SharedParts
from presim.studies.validation.case_tables import read_table
from presim.studies.validation.error_summary import markdown
from presim.system.files import write_file
from rl_steps import GROUP_SHARE, PROMPT, SPREAD

SWEEPS = Path(__file__).with_name("rl_placements.csv")
RESULT = Path(__file__).parent / "results" / "rl-placements.md"
ROWS = RESULT.with_suffix(".json")
GOAL = 0.03
_COLUMNS = ("sweep", "placement", "framework", "recipe", "overrides", "gpu", "sequence_tokens", "response_tokens")
_MODELS = {"verl": "qwen2.5-7b"}  # whose scripts name a folder


def step_s(row: Mapping[str, str], folder: str, response_tokens: float) -> float:
    """The step of a recipe with responses of a mean length, on two engines, in seconds.

    Raises:
        InputError: presim refuses the recipe.
    """
    recipe = read_recipe(row["framework"], str(Path(folder) / row["recipe"]), row["overrides"].split())
    longest = recipe.longest_response
    if row["sequence_tokens"] and longest is not None:
        longest -= PROMPT
    fields: dict[str, Any] = {**recipe.fields, "force": True, "prompt_tokens": str(PROMPT)}
    if row["framework"] in _MODELS:
        fields["model"] = _MODELS[row["framework"]]
    spread = f"cv={SPREAD}" if row["sequence_tokens"] else f"p99={longest}"
    fields["response"] = f"lognormal:mean={response_tokens:.0f},{spread},max={longest},group={GROUP_SHARE}"
    cluster = choose_cluster(gpu=row["gpu"], world_size=recipe.world_size, gpus_per_node=recipe.gpus_per_node)
    built, parts = build_job(RlRequest(**fields), cluster), SharedParts()
    sample, sample_parts = sampled(built, parts)
    return answer(sample, simulate(sample.job, sample.prices, sample_parts)).figures.step_time_s


def means(row: Mapping[str, str]) -> list[float]:
    """Mean lengths of responses that a row is simulated with: the published one, or several."""
    if row["sequence_tokens"]:
        return [float(row["sequence_tokens"]) - PROMPT]
    return [float(tokens) for tokens in row["response_tokens"].split(";")]


def groups(rows: Sequence[Mapping[str, str]], results: Mapping[str, list[float]]) -> list[tuple[str, bool, Group]]:
    """Sweeps with their text, whether their lengths are published, and their runs."""
    found = []
    for sweep in dict.fromkeys(row["sweep"] for row in rows):
        members = [row for row in rows if row["sweep"] == sweep and key(row) in results]
        if len(members) < 2:
            continue
        for index, tokens in enumerate(means(members[0])):
            is_published = bool(members[0]["sequence_tokens"])
            text = sweep if is_published else f"{sweep}, {tokens:,.0f} tokens assumed"
            runs = [Run(float(row["step_time_s"]), results[key(row)][index]) for row in members]
            found.append((text, is_published, Group(members[0]["source"], text, runs)))
    return found


def key(row: Mapping[str, str]) -> str:
    """What a placement is called among results."""
    return f"{row['sweep']}: {row['placement']}"


def page(rows: Sequence[Mapping[str, str]], results: Mapping[str, Any]) -> str:
    """The results as Markdown."""
    found = groups(rows, {name: value for name, value in results.items() if isinstance(value, list)})
    lines = [
        "# Placements of one job: predicted beside measured",
        "",
        f"{datetime.date.today()}, by `python validation/rl_placements.py NEMO_RL VERL`. A sweep has the same model",
        "and GPUs in placements that its framework published, predicted from the framework's own recipes. Regret is",
        "how much slower, as measured, the placement is that presim ranks first than the fastest. Tau is Kendall's.",
        "",
    ]
    for is_published in (True, False):
        some = [group for _, published, group in found if published == is_published]
        if not some:
            continue
        regret = statistics.median(group.regret for group in some)
        lines.append(
            f"Lengths {'published' if is_published else 'assumed'}: {len(some)} sweeps, regret {regret:.1%} in the "
            f"median and {max(group.regret for group in some):.1%} at most (the goal is {GOAL:.0%}), "
            f"{statistics.median(group.of_a_draw for group in some):.1%} drawn at random; the fastest is first in "
            f"{sum(not group.regret for group in some)}; tau {statistics.median(group.tau for group in some):+.2f}."
        )
    table = [
        (text, str(len(group.runs)), f"{group.regret:.1%}", f"{group.of_a_draw:.1%}", f"{group.tau:+.2f}")
        for text, _, group in found
    ]
    lines += ["", markdown(("sweep", "placements", "regret", "drawn at random", "tau"), table)]
    steps = [
        (
            row["sweep"], row["placement"], row["step_time_s"],
            ", ".join(f"{value:.4g}" for value in results[key(row)]) if isinstance(results[key(row)], list)
            else f"refused: {results[key(row)]}",
        )
        for row in rows if key(row) in results
    ]  # fmt: skip
    lines += ["## Each step", "", markdown(("sweep", "placement", "measured, s", "predicted, s"), steps)]
    return "\n".join(lines)


def main() -> None:
    """Predict the sweeps and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nemo_rl", metavar="NEMO_RL")
    parser.add_argument("verl", metavar="VERL")
    parser.add_argument("--only", default="", help="sweeps whose name has this text")
    arguments = parser.parse_args()
    folders = {"nemo-rl": arguments.nemo_rl, "verl": arguments.verl}
    for folder in folders.values():
        if not Path(folder).is_dir():
            raise InputError(f"there is no folder {folder} of recipes")
    rows = read_table(SWEEPS, _COLUMNS, "a placement of a sweep has")
    results: dict[str, Any] = json.loads(ROWS.read_text()) if ROWS.exists() else {}
    for row in rows:
        if arguments.only not in row["sweep"]:
            continue
        try:
            results[key(row)] = [step_s(row, folders[row["framework"]], tokens) for tokens in means(row)]
        except InputError as error:
            results[key(row)] = str(error)
        print(key(row), row["step_time_s"], results[key(row)], flush=True)
        write_file(ROWS, (json.dumps(results, indent=2, sort_keys=True) + "\n").encode())
    write_file(RESULT, page(rows, results).encode())


if __name__ == "__main__":
    with sentences():
        main()
