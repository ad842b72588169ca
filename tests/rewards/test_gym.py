"""The reward `gym`: reasoning_gym's scorers, with their pitfalls closed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.rewards.judging import asked, judge
from toishi.errors import DataError
from toishi.isolation.limits import Limits
from toishi.isolation.pool import call_killable
from toishi.rewards import Reward, check_prompts
from toishi.rewards.gym import GymReward
from toishi.rewards.gym_scoring import packed, plain_value, require_harmless, score
from toishi.rewards.scripted import answered
from toishi.tasks.gym import Gym
from toishi.types import Prompt

reasoning_gym = pytest.importorskip("reasoning_gym")


def problem_of(dataset: str, **config: Any) -> Prompt:
    return Gym(dataset=dataset, config=config, heldout=0).build(seed=0).train_prompt(0)


SUM = problem_of("chain_sum", min_terms=2, max_terms=2, min_digits=2, max_digits=2)
GOLD = str(SUM.gold)


def scored(dataset: str, answer: str, seed: int = 5) -> float | None:
    entry = reasoning_gym.create_dataset(dataset, seed=seed, size=1)[0]
    call = {"dataset": dataset, "config": {}, "entry": packed(entry), "answer": answer}
    value: float | None = call_killable("toishi.rewards.gym_scoring:score", call, limits=Limits(memory_mb=4096))["value"]
    return value


def test_the_gold_is_paid_and_everything_around_it_is_not() -> None:
    texts = {
        GOLD: 1.0,
        f"Let me see.\n{GOLD}\n": 1.0,
        f"The answer is {GOLD}": 1.0,
        f"**Answer: {GOLD}**": 1.0,
        f"so \\boxed{{{GOLD}}} I think": 1.0,
        f"<answer> {GOLD} </answer> bye": 1.0,
        f"<answer>1</answer><answer>{GOLD}</answer>": 1.0,
        f"<answer>{GOLD}</answer><answer>1</answer>": 0.0,
        f"\\boxed{{{GOLD}}} no, \\boxed{{1}}": 0.0,
        f"{GOLD} or 1 or 2": 0.0,
        f"1\n{GOLD}\n2": 0.0,
        f"1{GOLD}": 0.0,
        f"{GOLD}1": 0.0,
        f"not {GOLD}": 0.0,
        "I don't know.": 0.0,
        "nan": 0.0,
        "inf": 0.0,
        ".": 0.0,
    }
    judged = GymReward().score_group(SUM, [answered(text) for text in texts])
    assert {text: part.value for text, (part,) in zip(texts, judged, strict=True)} == texts
    assert {part.readable for (part,) in judged} == {True}


@pytest.mark.parametrize("binary", [True, False])
def test_words_around_the_gold_get_nothing_from_the_raw_score_either(binary: bool) -> None:
    plain = reasoning_gym.get_score_answer_fn("chain_sum")
    wordy = f"I think {GOLD}"
    assert 0 < plain(wordy, SUM.columns["entry"]) < 1  # what the package itself pays
    assert judge(GymReward(binary=binary), f"<answer>{wordy}</answer>", SUM).value == 0.0


def test_consolation_is_paid_only_when_asked_for() -> None:
    prompt = problem_of("countdown")
    assert judge(GymReward(), "<answer>1 + 1</answer>", prompt).value == 0.0
    assert judge(GymReward(binary=False), "<answer>1 + 1</answer>", prompt).value == pytest.approx(0.05)
    assert judge(GymReward(), f"<answer>{prompt.gold}</answer>", prompt).value == 1.0


@pytest.mark.parametrize(
    ("where", "text", "value", "reason"),
    [
        ("tags", GOLD, 0.0, "no <answer>...</answer>"),
        ("tags", f"<answer>{GOLD}", 0.0, "no <answer>...</answer>"),
        ("tags", "<answer> </answer>", 0.0, "no <answer>...</answer>"),
        ("auto", f"<answer>{GOLD}", 0.0, "no <answer>...</answer>"),
        ("box", GOLD, 0.0, "no \\boxed{...}"),
        ("box", f"\\boxed{{{GOLD}", 0.0, "no \\boxed{...}"),
        ("last_line", "", 0.0, "no text"),
        ("last_line", " \n ", 0.0, "no text"),
        ("auto", "", 0.0, "no text"),
    ],
)
def test_where_there_is_no_answer(where: Any, text: str, value: float, reason: str) -> None:
    judgement = judge(GymReward(where=where), text, SUM)
    assert (judgement.value, judgement.reason, judgement.readable, judgement.status) == (value, reason, False, "ok")


def test_a_box_keeps_its_braces_and_a_cut_off_answer_is_not_paid() -> None:
    prompt = problem_of("fraction_simplification")
    assert judge(GymReward(where="box"), f"\\boxed{{{prompt.gold}}}", prompt).value == 1.0
    assert judge(GymReward(), GOLD, SUM, "length").value == 0.0
    assert judge(GymReward(require_stop=False), GOLD, SUM, "length").value == 1.0


@pytest.mark.parametrize(
    "dataset",
    ["game_of_life_halting", "gsm_symbolic", "knights_knaves", "quantum_lock", "sokoban", "survo", "kakurasu", "letter_jumble"],
)
def test_scorers_that_pay_for_any_text_or_for_words_around_the_gold(dataset: str) -> None:
    """For each of them the package's own scorer pays at least one of these in full."""
    entry = reasoning_gym.create_dataset(dataset, seed=5, size=1)[0]
    gold, plain = entry["answer"], reasoning_gym.get_score_answer_fn(dataset)
    attacks = [f"I think {gold}", f"{gold} or not", f"zz\n{gold}\nyy", "no idea", ":"]
    assert 1.0 in [plain(text, entry) for text in attacks]
    assert scored(dataset, gold) == 1.0
    assert [scored(dataset, text) for text in attacks if (scored(dataset, text) or 0) >= 1] == []


@pytest.mark.parametrize("dataset", ["string_insertion", "spiral_matrix", "binary_matrix", "n_queens"])
def test_scorers_that_evaluate_the_answer_run_no_code(dataset: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    for code in (f"open({str(mark)!r}, 'w')", f"[open({str(mark)!r}, 'w')]", f"__import__('os').mkdir({str(mark)!r})"):
        assert scored(dataset, code) in (0.0, 0.01, None)
    assert not mark.exists()


@pytest.mark.parametrize(
    "dataset", ["countdown", "puzzle24", "simple_integration", "intermediate_integration", "polynomial_multiplication"]
)
def test_scorers_that_parse_with_sympy_run_no_code(dataset: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    codes = [
        f"open({str(mark)!r}, 'w')",
        f"sin(open({str(mark)!r}, 'w'))",
        f"lambdify(x, \"open({str(mark)!r}, 'w')\")",
        f'sympify("open({str(mark)!r}, chr(119))")',
        f"().__class__.__base__.__subclasses__() or open({str(mark)!r}, 'w')",
    ]
    for code in codes:
        assert (scored(dataset, code) or 0.0) < 1
    assert not mark.exists()


def test_formulas_still_get_through() -> None:
    entry = reasoning_gym.create_dataset("simple_integration", seed=5, size=1)[0]
    assert scored("simple_integration", entry["answer"]) == 1.0
    assert scored("simple_integration", entry["answer"].replace(" + C", " + 3 + C")) == 1.0
    assert plain_value("[1, 'a', (2, -3)]") == [1, "a", (2, -3)]
    for code in ("f(1)", "a", "[x for x in y]", "1 if 2 else 3", "(lambda: 1)()", "'a'.b"):
        with pytest.raises(ValueError, match="not a plain value"):
            plain_value(code)
    for code in ("exec ('x')", "Symbol ('x').func", "[Integer (1 )]", "sin ('x')", "lambdify (1)", "sin (1, evaluate=False)"):
        with pytest.raises(ValueError, match="not a formula"):
            require_harmless(code)


def test_an_answer_that_the_scorer_cannot_read_is_wrong_and_not_broken() -> None:
    prompt = problem_of("prime_factorization")
    with pytest.raises(ValueError, match="invalid literal"):
        reasoning_gym.get_score_answer_fn("prime_factorization")("no idea", prompt.columns["entry"])
    judgement = judge(GymReward(), "no idea", prompt)
    assert (judgement.value, judgement.status) == (0.0, "ok")
    assert "the scorer cannot read it (ValueError" in judgement.reason


def test_work_that_takes_too_long_is_killed_and_the_next_answer_is_scored() -> None:
    prompt = problem_of("polynomial_multiplication")
    reward = GymReward(timeout_s=2.0)
    texts = ["(x + 1)**(9**9)*(x + 2)**(9**9)+9**9**9**9", str(prompt.gold)]
    (poison,), (good,) = reward.score_group(prompt, [answered(f"<answer>{text}</answer>") for text in texts])
    assert (poison.value, poison.status, poison.kind) == (None, "failed", "killed")
    assert good.value == 1.0


def test_the_data_set_s_own_options_reach_its_scorer(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def caught(function: str, arguments: list[Any], **rest: Any) -> list[Any]:
        calls.extend(arguments)
        return [{"value": 1.0, "why": "caught"}] * len(arguments)

    monkeypatch.setattr("toishi.rewards.gym.call_each", caught)
    prompt = problem_of("decimal_arithmetic", min_num_decimal_places=3, precision=9)
    assert judge(GymReward(), "1.5", prompt).value == 1.0
    (call,) = calls
    assert (call["dataset"], call["answer"]) == ("decimal_arithmetic", "1.5")
    assert call["config"] == {"min_num_decimal_places": 3, "precision": 9}


def test_the_parser_is_as_it_was_for_the_next_caller() -> None:
    from sympy.parsing import sympy_parser  # type: ignore[import-untyped]

    before, entry = sympy_parser.stringify_expr, reasoning_gym.create_dataset("simple_integration", seed=5, size=1)[0]
    call = {"dataset": "simple_integration", "config": {}, "entry": packed(entry), "answer": "exec('x')"}
    assert score(call)["value"] == 0.0
    assert sympy_parser.stringify_expr is before


def test_rows_that_are_no_entries_are_found_before_the_start() -> None:
    reward = GymReward()
    assert isinstance(reward, Reward)
    assert (reward.columns, reward.concurrent, reward.problem(SUM)) == (("entry",), True, None)
    bad: list[Any] = [None, "x", {}, {"answer": "1"}, {"answer": "1", "metadata": {"source_dataset": "chain_sums"}}]
    for entry in bad:
        with pytest.raises(DataError, match="reward 'gym'"):
            check_prompts([reward], [asked(columns={"entry": entry})])
        assert judge(reward, "1", asked(columns={"entry": entry})).status == "failed"
    assert "did you mean 'chain_sum'?" in str(reward.problem(asked(columns={"entry": bad[-1]})))
