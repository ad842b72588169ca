"""How often three checkers are right about the same pairs, and how long they take. One run, printed and written as JSON.

    python benchmarks/answers.py [--numbers 10000] [--json FILE]

Checkers: TRL's `accuracy_reward`, math-verify with the gold in `$`, and toishi's `verify`. Pairs: those of tests/answers/cases.
Times are of the first call on each pair, in turn for both checkers, so neither has seen the pair before.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toishi.answers import verifying
from toishi.answers.reading import read_gold
from toishi.answers.verifying import verify

CASES = Path(__file__).parents[1] / "tests" / "answers" / "cases"
SETS = ("answers", "pairs", "hard", "unseen")
Row = dict[str, Any]


def main() -> None:
    """Prints the table and the times."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--numbers", type=int, default=10_000)
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    logging.disable(logging.ERROR)
    rows = [row for name in SETS for row in pairs(name)]
    latex, numbers, counts = time_latex(rows), time_numbers(given.numbers), table(rows)
    print(as_markdown(counts))
    for part, times in (("numbers", numbers), ("latex", latex)):
        print("\n".join(f"{part}: {name} {value:.4g}" for name, value in times.items()))
    if given.json:
        result = {"latex": latex, "numbers": numbers, "table": counts}
        given.json.write_text(json.dumps(result, indent=2), encoding="utf-8")


def pairs(name: str) -> list[Row]:
    """The pairs of one file, each with the file's name."""
    lines = (CASES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) | {"set": name} for line in lines]


def with_trl(row: Row) -> float | None:
    """TRL's reward, called in the main thread as its trainer does."""
    from trl.rewards import accuracy_reward

    value: float | None
    (value,) = accuracy_reward([[{"role": "assistant", "content": row["completion"]}]], [str(row["gold"])])
    return value


def with_math_verify(row: Row) -> float | None:
    """math-verify as its front page shows it, with the gold marked as LaTeX."""
    from math_verify import parse
    from math_verify import verify as equal

    gold = str(row["gold"])
    return float(equal(parse(gold if "$" in gold else f"${gold}$"), parse(row["completion"])))


def with_toishi(row: Row) -> float | None:
    """`verify`; None where it is undecided."""
    verdict = verify(read_gold(row["gold"]), row["completion"]).verdict
    return None if verdict == "undecided" else float(verdict == "right")


CHECKERS: dict[str, Callable[[Row], float | None]] = {
    "TRL accuracy_reward": with_trl,
    "math-verify, gold in $": with_math_verify,
    "toishi": with_toishi,
}


def table(rows: list[Row]) -> dict[str, dict[str, dict[str, int]]]:
    """For each set of pairs and checker: right paid, right not paid, wrong paid, wrong not paid, undecided (of both)."""
    found: dict[str, dict[str, Counter[str]]] = {name: {checker: Counter() for checker in CHECKERS} for name in SETS}
    for row in rows:
        for checker, ask in CHECKERS.items():
            value = ask(row)
            kind = "undecided" if value is None else "paid" if value == 1.0 else "not paid"
            truth = "right " if row["right"] else "wrong "
            found[row["set"]][checker]["undecided" if value is None else truth + kind] += 1
    return {name: {checker: dict(counts) for checker, counts in of_set.items()} for name, of_set in found.items()}


def as_markdown(found: dict[str, dict[str, dict[str, int]]]) -> str:
    """The table as it stands in docs/answers.md."""
    columns = ("right paid", "right not paid", "wrong paid", "undecided")
    lines = ["| pairs | checker | " + " | ".join(columns) + " |", "|---|---|" + "---:|" * len(columns)]
    for name, of_set in found.items():
        for checker, counts in of_set.items():
            lines.append(f"| {name} | {checker} | " + " | ".join(str(counts.get(column, 0)) for column in columns) + " |")
    return "\n".join(lines)


def time_numbers(count: int) -> dict[str, float]:
    """Milliseconds of one numeric answer: golds and answers all different, so nothing is remembered."""
    draw = random.Random(0)
    took = []
    for place in range(count):
        value = draw.randrange(-(10**6), 10**6)
        gold = read_gold(str(value))
        shown = f"{value:,}" if place % 2 else rf"\frac{{{3 * value}}}{{3}}"
        completion = rf"Step {place}: adding up, the total is \boxed{{{shown}}}."
        started = time.perf_counter()
        verdict = verify(gold, completion)
        took.append(1000 * (time.perf_counter() - started))
        assert verdict.verdict == "right", verdict
    return {"answers": count, "median ms": statistics.median(took), "99% ms": statistics.quantiles(took, n=100)[-1]}


def time_latex(rows: list[Row]) -> dict[str, float]:
    """Milliseconds of one LaTeX answer (a box with a backslash in it), and of those that toishi compares in its child."""
    chosen = [row for row in rows if "\\" in row["completion"].partition("\\boxed")[2]]
    for warm in (with_math_verify, with_toishi):  # imports, and the child's start
        warm({"gold": r"\sin 7", "completion": r"\boxed{\cos 7}"})
    times: dict[str, list[float]] = {"math-verify": [], "toishi": []}
    in_child = []
    for row in chosen:
        before = len(verifying._remembered)
        times["toishi"].append(_once(with_toishi, row))
        in_child.append(len(verifying._remembered) > before)
        times["math-verify"].append(_once(with_math_verify, row))
    result: dict[str, float] = {"answers": len(chosen), "compared in the child": sum(in_child)}
    for part, wanted in (("all", (True, False)), ("in the child", (True,))):
        medians = {
            name: statistics.median(one for one, child in zip(took, in_child, strict=True) if child in wanted)
            for name, took in times.items()
        }
        result |= {f"{part}, {name}, median ms": value for name, value in medians.items()}
        result[f"{part}, toishi / math-verify"] = medians["toishi"] / medians["math-verify"]
    return result


def _once(ask: Callable[[Row], float | None], row: Row) -> float:
    started = time.perf_counter()
    ask(row)
    return 1000 * (time.perf_counter() - started)


if __name__ == "__main__":
    main()
