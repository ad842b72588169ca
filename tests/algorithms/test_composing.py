"""Gates, caps, noise and failures: every sum by hand."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.algorithms.toy import PROMPT, changed, completion, informed
from toishi.algorithms.apply import assign_advantages
from toishi.algorithms.composing import composed, noise_note
from toishi.algorithms.rows import ROWS, Algorithm, algorithm
from toishi.algorithms.terms import Gate, Term, in_order, named, term_of
from toishi.config import RewardConfig, load_config
from toishi.config.yaml_text import read_yaml
from toishi.errors import ConfigError, RewardError
from toishi.rewards import build_rewards
from toishi.types import Group, Rollout, RolloutId, Score

FAILED, ABSTAINED = "failed", "abstained"
Said = float | str


def scored(terms: Sequence[Term], *members: Sequence[Said], index: int = 0) -> Group:
    """A group whose members were given these values, one for each term; "failed" and "abstained" are none."""
    rollouts = []
    for member, values in enumerate(members):
        scores = tuple(
            Score(reward=term.name, value=None, weight=term.weight, status=said, reason="broke")  # type: ignore[arg-type]
            if isinstance(said, str)
            else Score(reward=term.name, value=said, weight=term.weight, reason="said")
            for term, said in zip(terms, values, strict=True)
        )
        answer = completion([member % 4] * (1 + member % 3))
        rollouts.append(Rollout(id=RolloutId(0, index, member), prompt=PROMPT, completion=answer, scores=scores))
    return composed(Group(prompt=PROMPT, rollouts=tuple(rollouts)), terms)


def uses(group: Group, reward: str) -> list[str]:
    return [score.use for rollout in group.rollouts for score in rollout.scores if score.reward == reward]


def reasons(group: Group, reward: str) -> list[str]:
    return [score.reason for rollout in group.rollouts for score in rollout.scores if score.reward == reward]


RIGHT = Term(name="right")
STYLE = Term(name="style", weight=0.5, gate=Gate(reward="right"))


def test_a_closed_gate_pays_nothing_and_keeps_what_was_said() -> None:
    group = scored([RIGHT, STYLE], (1.0, 0.8), (0.0, 0.8), (0.99, 0.8))
    assert group.rewards == pytest.approx((1.4, 0.0, 0.99), abs=1e-12)  # 1 + .5 * .8; 0 + 0; .99 + 0
    assert uses(group, "style") == ["counted", "gated", "gated"]
    assert [rollout.scores[1].value for rollout in group.rollouts] == [0.8, 0.8, 0.8]
    assert reasons(group, "style")[1:] == [
        "gate closed: right is 0, needs at least 1; said",
        "gate closed: right is 0.99, needs at least 1; said",
    ]
    assert [rollout.status for rollout in group.rollouts] == ["completed"] * 3


def test_a_gate_looks_at_the_value_and_not_at_its_weight() -> None:
    gate = Term(name="right", weight=0.1)
    assert scored([gate, STYLE], (1.0, 1.0)).rewards == pytest.approx((0.6,), abs=1e-12)
    low = STYLE.model_copy(update={"gate": Gate(reward="right", at_least=-2.0)})
    assert scored([gate, low], (-1.5, 1.0), (-2.5, 1.0)).rewards == pytest.approx((0.35, -0.25), abs=1e-12)


def test_a_gate_that_says_nothing_leaves_the_gated_reward_out() -> None:
    group = scored([RIGHT, STYLE], (ABSTAINED, 0.8), (1.0, 0.8))
    assert group.rewards == (None, 1.4)
    assert uses(group, "style") == ["left_out", "counted"]
    assert group.rollouts[0].status == "completed"


def test_a_failed_gate_fails_the_answer_and_so_does_a_failed_gated_reward_behind_a_closed_gate() -> None:
    group = scored([RIGHT, STYLE], (FAILED, 0.8), (0.0, FAILED), (1.0, 0.5))
    assert group.rewards == (None, None, 1.25)
    assert [rollout.failure for rollout in group.rollouts] == ["reward right: broke", "reward style: broke", ""]


def test_a_reward_behind_a_closed_gate_closes_the_next() -> None:
    tone = Term(name="tone", gate=Gate(reward="style", at_least=0.1))
    group = scored([tone, STYLE, RIGHT], (1.0, 0.8, 1.0), (1.0, 0.8, 0.0))
    assert group.rewards == pytest.approx((2.4, 0.0), abs=1e-12)
    assert uses(group, "tone") == ["counted", "gated"]


@pytest.mark.parametrize(("value", "paid", "use"), [(3.0, 1.0, "capped"), (-3.0, -0.5, "capped"), (1.5, 0.75, "counted")])
def test_a_cap_bounds_weight_times_value(value: float, paid: float, use: str) -> None:
    group = scored([Term(name="judge", weight=0.5, cap=(-0.5, 1.0))], (value,))
    assert (group.rewards, uses(group, "judge")) == ((paid,), [use])
    assert group.rollouts[0].scores[0].value == value
    if use == "capped":
        assert reasons(group, "judge") == [f"capped at {paid:g} (weight × value is {0.5 * value:g}); said"]


@pytest.mark.parametrize(
    ("cap", "steps", "paid"),
    [
        ((0.0, 1.0), (1.0, 1.0, 1.0), (1 / 3, 1 / 3, 1 / 3)),
        ((0.0, 1.0), (3.0, 0.0, -1.0), (1.5, 0.0, -0.5)),  # 2 in all, so each by 1/2
        ((-1.0, 1.0), (-2.0, -2.0), (-0.5, -0.5)),
        ((-1.0, 0.0), (1.0, 2.0), (0.0, 0.0)),
        ((0.5, 1.0), (0.0, 0.0), (0.25, 0.25)),  # no factor makes 0.5 of 0
        ((1.0, 2.0), (0.3, 0.1), (0.5, 0.5)),
        ((-1.0, -0.5), (3.0, -1.0), (-0.25, -0.25)),
        ((0.0, 1.0), (0.4, 0.6), (0.4, 0.6)),
        ((0.0, 1.0), (5.0, -4.5), (5.0, -4.5)),  # the sum is inside
    ],
)
def test_a_cap_holds_the_sum_of_an_answer_s_steps(
    cap: tuple[float, float], steps: tuple[float, ...], paid: tuple[float, ...]
) -> None:
    term = Term(name="steps", cap=cap)
    scores = tuple(Score(reward="steps", value=value, span=(place, place + 1)) for place, value in enumerate(steps))
    rollout = Rollout(id=RolloutId(0, 0, 0), prompt=PROMPT, completion=completion([1, 2, 3]), scores=scores)
    (got,) = composed(Group(prompt=PROMPT, rollouts=(rollout,)), [term]).rollouts
    assert [score.contribution for score in got.scores] == pytest.approx(list(paid), abs=1e-12)
    assert got.reward == pytest.approx(math.fsum(paid), abs=1e-12)
    assert {score.use for score in got.scores} == {"counted" if paid == steps else "capped"}
    assert [score.value for score in got.scores] == list(steps)
    again = composed(Group(prompt=PROMPT, rollouts=(got,)), [term])
    assert again.rollouts == (got,), "composed again it is the same"
    if paid != steps:
        assert got.scores[0].reason.startswith(f"capped: its {len(steps)} parts add up to {math.fsum(steps):g}, held at ")


@pytest.mark.parametrize(
    ("term", "value"),
    [
        (RIGHT, 1e308),
        (RIGHT, -1.1e100),
        (Term(name="right", weight=1e10), 1e95),
        (Term(name="right", weight=1e10, cap=(0.0, 1.0)), 1e308),
        (Term(name="right", weight=0.0), 1e308),
        (Term(name="right", noise=1e308), 1e308),
    ],
)
def test_numbers_too_large_to_be_compared_are_said_in_words(term: Term, value: float) -> None:
    with pytest.raises(RewardError, match=r"rollout 0/0/1: reward 'right' .* no mean and no spread; expected at most 1e\+100"):
        scored([term], (1.0,), (value,))


@pytest.mark.parametrize("combine", ["sum", "normalise_each"])
def test_the_largest_numbers_still_have_advantages(combine: str) -> None:
    row = Algorithm.model_validate(algorithm("grpo").model_dump() | {"name": "each", "combine": combine})
    (group,) = assign_advantages([scored([RIGHT], (1e100,), (-1e100,))], row, max_new_tokens=8)
    assert [rollout.advantage for rollout in group.rollouts] == pytest.approx([0.5**0.5, -(0.5**0.5)], rel=1e-3)


def test_a_mistyped_gate_is_named_and_a_cap_is_said_once() -> None:
    with pytest.raises(ConfigError, match="unknown option; did you mean 'gate'"):
        build_rewards([RewardConfig.model_validate({"name": "number", "gates": {"reward": "x"}})], columns=frozenset())
    with pytest.raises(ConfigError) as refused:
        load_config({"rewards": [{"name": "number", "cap": [1, 0]}]})
    assert str(refused.value).count("[1, 0]") == 1


def test_a_reward_that_failed_is_left_out_of_its_whole_group_if_asked_for() -> None:
    judge = Term(name="judge", on_failure="drop_reward")
    group = scored([RIGHT, judge], (1.0, 0.9), (0.0, FAILED), (0.0, 0.3))
    assert group.rewards == (1.0, 0.0, 0.0)  # like is compared with like: nobody is paid by the judge
    assert uses(group, "judge") == ["left_out"] * 3
    assert [rollout.status for rollout in group.rollouts] == ["completed"] * 3
    assert scored([RIGHT, judge], (1.0, 0.9), (0.0, 0.3)).rewards == (1.9, 0.3)  # another group keeps it


def test_an_answer_that_is_lost_anyway_costs_its_siblings_no_reward() -> None:
    """As if it had not been sampled: the judge's failure on it is no reason to leave the judge out."""
    judge = Term(name="judge", on_failure="drop_reward")
    group = scored([RIGHT, judge], (1.0, 0.5), (FAILED, FAILED), (0.0, 0.25))
    assert group.rewards == (1.5, None, 0.25)
    assert group.rollouts[1].failure == "reward right: broke"


def test_a_gate_that_is_left_out_of_the_group_takes_the_gated_reward_along() -> None:
    right = Term(name="right", on_failure="drop_reward")
    group = scored([Term(name="form"), right, STYLE], (1.0, 1.0, 0.8), (0.5, FAILED, 0.8))
    assert group.rewards == (1.0, 0.5)
    assert uses(group, "style") == ["left_out", "left_out"]


def test_a_group_without_any_reward_left_is_not_failed() -> None:
    group = scored([Term(name="judge", on_failure="drop_reward")], (0.9,), (FAILED,))
    assert (group.rewards, [rollout.status for rollout in group.rollouts]) == ((None, None), ["completed", "completed"])


def test_composing_again_changes_nothing() -> None:
    terms = [RIGHT, STYLE, Term(name="judge", cap=(0, 1), noise=0.5, on_failure="drop_reward")]
    group = scored(terms, (1.0, 0.8, 2.0), (0.0, 0.8, 0.9), (1.0, 0.2, 1.0))
    assert composed(group, terms) == group


NOISY = Term(name="judge", weight=2.0, noise=0.3)


def test_differences_within_the_noise_are_paid_as_the_mean() -> None:
    """Contributions .8, 1.2, 1.6 have the sample deviation .4; told apart above 2 * 2 * .3 = 1.2."""
    group = scored([RIGHT, NOISY], (1.0, 0.4), (0.0, 0.6), (1.0, 0.8))
    assert group.rewards == pytest.approx((2.2, 1.2, 2.2), abs=1e-12)
    assert uses(group, "judge") == ["levelled"] * 3
    assert reasons(group, "judge")[0] == "within its noise: spread 0.4, told apart above 1.2; the group's mean counts; said"
    assert noise_note(group.rollouts).startswith("within the noise of 'judge'")


def test_differences_beyond_the_noise_are_paid() -> None:
    """Contributions 0 and 1.8: deviation 1.8 / sqrt 2 = 1.27, above 1.2."""
    group = scored([NOISY], (0.0,), (0.9,))
    assert group.rewards == (0.0, 1.8)
    assert noise_note(group.rollouts) == ""


def test_levelled_answers_are_tied() -> None:
    group = scored([NOISY], (0.1,), (0.3,), (0.7,))
    assert group.is_tied
    (done,) = assign_advantages([group], algorithm("grpo"), max_new_tokens=8)
    assert [rollout.advantage for rollout in done.rollouts] == [0.0, 0.0, 0.0]
    assert done.baseline is not None
    assert done.baseline.kept
    assert done.baseline.why.startswith("within the noise of 'judge'")
    (dropped,) = assign_advantages([group], algorithm("dapo"), max_new_tokens=8)
    assert dropped.baseline is not None
    assert not dropped.baseline.kept


def test_noise_never_opens_a_gate() -> None:
    judge = Term(name="judge", noise=0.3, gate=Gate(reward="right"))
    group = scored([RIGHT, judge], (1.0, 0.2), (1.0, 0.4), (0.0, 0.3))
    assert group.rewards == pytest.approx((1.3, 1.3, 0.0), abs=1e-12)


def test_several_parts_of_a_noisy_reward_share_the_mean() -> None:
    """Two criteria: totals .5 and .7, mean .6, so .3 for each part."""
    parts = [(0.2, 0.3), (0.3, 0.4)]
    rollouts = tuple(
        Rollout(
            id=RolloutId(0, 0, member), prompt=PROMPT, completion=completion([0]),
            scores=tuple(Score(reward="rubric", value=value) for value in values),
        )
        for member, values in enumerate(parts)
    )  # fmt: skip
    group = composed(Group(prompt=PROMPT, rollouts=rollouts), [Term(name="rubric", noise=0.2)])
    assert group.rewards == pytest.approx((0.6, 0.6), abs=1e-12)
    assert [score.paid for score in group.rollouts[0].scores] == pytest.approx([0.3, 0.3], abs=1e-12)


def test_rewards_of_steps_are_not_levelled() -> None:
    rollouts = tuple(
        Rollout(id=RolloutId(0, 0, member), prompt=PROMPT, completion=completion([0]),
                scores=(Score(reward="steps", value=0.1 * member, span=(0, 1)),))
        for member in range(2)
    )  # fmt: skip
    assert composed(Group(prompt=PROMPT, rollouts=rollouts), [Term(name="steps", noise=5.0)]).rewards == (0.0, 0.1)


def mean_size(draws: Any, noise: float) -> float:
    """Mean |advantage| over groups of equally good answers whose judge has a standard deviation of .3 points."""
    terms = [Term(name="judge", noise=noise)]
    groups = [scored(terms, *((float(value),) for value in row), index=place) for place, row in enumerate(draws)]
    done = assign_advantages(groups, changed("grpo", std_epsilon=0.0), max_new_tokens=8)
    return statistics.fmean(abs(r.advantage) for group in done for r in group.rollouts)  # type: ignore[arg-type]


def test_the_noise_floor_stops_the_tie_lottery() -> None:
    """Four draws of a normal, centred and divided by their sample deviation, are uniform on [-1.5, 1.5]: mean size .75.

    Noise alone exceeds the floor of two deviations when chi-square with 3 degrees of freedom exceeds 12: in .74% of groups.
    """
    draws = 7 + 0.3 * np.random.default_rng(0).standard_normal((2000, 4))
    exceeding = math.erfc(math.sqrt(6)) + math.sqrt(2 / math.pi) * math.sqrt(12) * math.exp(-6)
    assert exceeding == pytest.approx(0.00738, abs=1e-5)
    assert mean_size(draws, noise=0.0) == pytest.approx(0.75, abs=0.015)
    assert mean_size(draws, noise=0.3) == pytest.approx(0.75 * exceeding, abs=0.004)


def test_real_differences_are_still_learned_from() -> None:
    """8, 6, 3, 3 with a deviation of .3: spread 2.45, told apart above .6."""
    group = scored([Term(name="judge", noise=0.3)], (8.0,), (6.0,), (3.0,), (3.0,))
    assert group.rewards == (8.0, 6.0, 3.0, 3.0)


COMPOSED = [
    Term(name="right"),
    Term(name="style", weight=0.5, gate=Gate(reward="right"), cap=(0.0, 0.4)),
    Term(name="judge", weight=2.0, noise=0.05),
]
MEMBERS: list[tuple[Said, ...]] = [(1.0, 0.9, 0.31), (0.0, 0.5, 0.9), (1.0, 0.3, 0.02), (0.0, 0.2, 0.4)]
OTHER: list[tuple[Said, ...]] = [(1.0, 0.9, 0.31), (0.0, 0.5, 0.32), (1.0, 0.3, 0.33)]
GDPO = changed("grpo", combine="normalise_each")


@pytest.mark.parametrize("failure", [(FAILED, 0.5, 0.5), (1.0, FAILED, 0.5), (0.0, 0.5, FAILED)])
@pytest.mark.parametrize("row", [*ROWS.values(), GDPO], ids=[*ROWS, "gdpo"])
def test_a_failed_member_is_as_if_it_had_not_been_sampled(row: Algorithm, failure: tuple[Said, ...]) -> None:
    broken = scored(COMPOSED, *MEMBERS[:2], failure, *MEMBERS[2:])
    whole = scored(COMPOSED, *MEMBERS)
    # the same answers on both sides, so that token statistics are those of the same tokens
    rest = [rollout for rollout in broken.rollouts if rollout.id.member != 2]
    pairs = zip(whole.rollouts, rest, strict=True)
    whole = replace(whole, rollouts=tuple(replace(mine, completion=same.completion) for mine, same in pairs))
    broken, whole, others = informed([broken, whole, scored(COMPOSED, *OTHER, index=1)])
    one = assign_advantages([broken, others], row, max_new_tokens=8)
    other = assign_advantages([whole, others], row, max_new_tokens=8)
    assert not any(one[0].rollouts[2].advantage_per_token)
    siblings = [rollout for rollout in one[0].rollouts if rollout.id.member != 2]
    assert [rollout.reward for rollout in siblings] == [rollout.reward for rollout in other[0].rollouts]
    for mine, same in zip([*siblings, *one[1].rollouts], [*other[0].rollouts, *other[1].rollouts], strict=True):
        assert mine.advantage_per_token == pytest.approx(same.advantage_per_token, abs=1e-12)  # sums of 0 and of nothing


def test_gates_in_a_circle_and_to_nowhere_are_refused() -> None:
    circle = [
        Term(name="a", gate=Gate(reward="b")),
        Term(name="b", gate=Gate(reward="c")),
        Term(name="c", gate=Gate(reward="b")),
    ]
    with pytest.raises(ConfigError, match="gates form a circle, so none of them could be decided: b -> c -> b"):
        in_order(circle)
    with pytest.raises(ConfigError, match=r"reward 'a': gate\.reward: there is no reward 'rihgt'; did you mean 'right'\?"):
        in_order([Term(name="right"), Term(name="a", gate=Gate(reward="rihgt"))])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"gate": {"reward": "format"}}, "there is no reward 'format'"),
        ({"gate": {"reward": "number"}}, "circle"),
        ({"gate": "format"}, r"rewards.0.gate"),
        ({"cap": [1, 0]}, r"low <= high, got \[1, 0\]"),
        ({"noise": -0.1}, "greater than or equal to 0"),
        ({"on_failure": "zero"}, "drop_answer"),
        ({"retries": -1}, "greater than or equal to 0"),
        ({"max_failed_share": 1.5}, "less than or equal to 1"),
    ],
)
def test_a_recipe_that_cannot_be_composed_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_config({"rewards": [{"name": "number", **options}]})


def test_a_function_goes_by_its_own_name() -> None:
    right, style = named([Term(name="function", cap=(0, 1)), Term(name="b", gate=Gate(reward="function"))], ["right", "style"])
    assert (right.name, right.cap, style.gate) == ("right", (0, 1), Gate(reward="right"))


def test_a_section_keeps_the_rewards_own_options() -> None:
    config = load_config({"rewards": [{"name": "number"}, {"name": "length", "target": 9, "gate": {"reward": "number"}}]})
    assert config.rewards[1].options == {"target": 9}
    assert term_of(config.model_dump(mode="json")["rewards"][1]) == Term(name="length", gate=Gate(reward="number"))


def test_the_recipes_in_the_page_can_be_loaded() -> None:
    page = (Path(__file__).parents[2] / "docs" / "rewards-composition.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    first, second = (load_config(read_yaml(block)) for block in blocks)
    assert first.rewards[1].cap == (-0.2, 0.3)
    assert second.algorithm.combine == "normalise_each"


def test_a_cap_leaves_a_step_alone_that_says_nothing() -> None:
    steps = (
        Score(reward="steps", value=3.0, weight=1.0, reason="right"),
        Score(reward="steps", value=None, weight=1.0, reason="no equation", status="abstained"),
    )
    rollout = Rollout(id=RolloutId(0, 0, 0), prompt=PROMPT, completion=completion([1, 2]), scores=steps)
    (got,) = composed(Group(prompt=PROMPT, rollouts=(rollout,)), [Term(name="steps", cap=(0.0, 1.0))]).rollouts
    assert (got.reward, got.scores[0].paid, got.scores[1]) == (1.0, 1.0, steps[1])
