"""What the page claims beyond the links: net pushes, who leads, where a move came from. Expected values are by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.explanation.chain.test_shared import sharing
from toishi.explanation.chain.build import explain_chain
from toishi.explanation.chain.cause import cause
from toishi.explanation.chain.headlines import headlines, leading
from toishi.explanation.chain.model import Chain, SharedStart
from toishi.explanation.chain.net import along, largest_net, outweighed, rivals
from toishi.explanation.chain.reasons import reason
from toishi.explanation.chain.story import page
from toishi.explanation.chain.story_scores import UNREAD
from toishi.explanation.chain.story_shared import turned
from toishi.explanation.chain.voice import Voice
from toishi.explanation.page.blocks import Table, unfolded
from toishi.explanation.page.render_html import html_page
from toishi.record import Run

VOICE = Voice.of("en")


@pytest.fixture(scope="module")
def chain(run: Run) -> Chain:
    return explain_chain(run, 1, group=0)


def test_the_largest_net_push_stands_beside_the_largest_own_push(chain: Chain) -> None:
    found = sharing(chain, net=9.0, moved=math.log(1.21), rest=0.1)
    assert [(place.members, place.token, place.push) for place in largest_net(found)] == [((0, 3), 0, 9.0), ((0, 3), 1, 9.0)]
    (told,) = [said for said in headlines(found, VOICE) if said.startswith("Largest own push")]
    assert "Largest net push, by all answers that share a token together" in told
    assert "each of the 2 tokens of" in told
    assert "from place 0 on, of #0, #3," in told
    assert "= +9." in told
    weights = next(section for section in page(found).sections if section.key == "weights")
    assert "= +9." in weights.headline


def test_a_single_token_with_the_largest_net_push_has_its_probabilities(chain: Chain) -> None:
    found = sharing(chain, net=0.01, moved=0.6, rest=0.1)
    assert found.weights is not None
    assert found.effect is not None
    first, *others = found.weights.starts
    starts = (replace(first, pushes=(9.0, 0.5)), *others)
    answers = tuple(
        replace(answer, tokens=(replace(answer.tokens[0], before=math.log(0.4), after=math.log(0.8)), *answer.tokens[1:]))
        for answer in found.effect.answers
    )
    single = replace(found, weights=replace(found.weights, starts=starts), effect=replace(found.effect, answers=answers))
    (told,) = [said for said in headlines(single, VOICE) if said.startswith("Largest own push")]
    assert "at place 0 of #0, #3," in told
    assert told.endswith("= +9. Its probability went 40% → 80%.")


def test_a_net_push_of_one_answer_alone_is_not_said_twice(chain: Chain) -> None:
    assert chain.weights is not None
    alone = replace(chain, weights=replace(chain.weights, starts=()))
    assert largest_net(alone) == ()
    assert not any("net push" in said for said in headlines(alone, VOICE))


def test_pushes_that_siblings_outweigh_are_named_with_what_is_left(chain: Chain) -> None:
    found = sharing(chain, net=0.01, moved=0.6, rest=0.1)
    lost = outweighed(found, 3)
    assert found.weights is not None
    assert lost is not None
    total = len(found.weights.members[3].tokens)
    assert (lost.count, lost.total, lost.others) == (2, total, (0,))
    assert len(lost.kept) == total - 2
    assert f"2 of its {total} tokens are shared with #0, and there all pushes together point up" in html_page(page(found))
    assert outweighed(sharing(chain, net=-0.01, moved=0.6, rest=0.1), 3) is None


def test_tokens_are_counted_by_their_net_push_and_rivals_are_those_of_the_same_place(chain: Chain) -> None:
    assert chain.weights is not None
    assert chain.effect is not None
    text = {
        answer.member: [token.text for token in answer.tokens] for answer in chain.effect.answers if answer.member is not None
    }
    starts = (
        SharedStart(members=(0, 1), depth=0, begin=0, texts=(text[0][0],), pushes=(1.0,)),
        SharedStart(members=(0,), depth=1, begin=1, texts=(text[0][1],), pushes=(2.0,)),
        SharedStart(members=(1,), depth=1, begin=1, texts=(text[1][1],), pushes=(1.0,)),
        SharedStart(members=(3,), depth=0, begin=0, texts=(text[3][0],), pushes=(-1.0,)),
    )
    moves = {0: (0.25, -0.5), 1: (0.25, 0.5), 3: (-0.25, 0.0)}
    answers = []
    for answer in chain.effect.answers:
        by = moves.get(answer.member, ()) if answer.kind == "rollout" and answer.member is not None else ()
        tokens = tuple(replace(token, after=token.before + step) for token, step in zip(answer.tokens, by, strict=False))
        answers.append(replace(answer, tokens=tokens, agreed=True) if by else answer)
    quiet = replace(chain.effect, answers=tuple(answers), noise=0.0)
    found = replace(chain, weights=replace(chain.weights, starts=starts), effect=quiet)
    assert along(found) == (3, 4, 0)
    assert along(replace(found, effect=replace(quiet, noise=0.3))) == (1, 2, 2)
    assert [place.members for place in rivals(found, starts[1])] == [(1,)]
    assert [place.members for place in rivals(found, starts[0])] == [(3,)]
    (told,) = turned(found, VOICE)
    assert told.startswith("Against its net push:")
    assert "of #0 is pushed up and went" in told
    assert "of #1 (net push +1)" in told


def tried(chain: Chain, *, alone: float, negative: float, share: float = 1.0) -> Chain:
    """What short trial steps did to #3, with the negative part's gradient `share` times as long as the whole."""
    assert chain.sft is not None
    contrast = chain.sft.contrast
    index = contrast.answers.index("member 3")
    changed = []
    for direction in contrast.directions:
        values = list(direction.changes)
        values[index] = {"grpo": alone, "grpo_negative": negative}.get(direction.name, values[index])
        norm = {"grpo": 2.0, "grpo_negative": 2.0 * share}.get(direction.name, direction.gradient_norm)
        changed.append(replace(direction, changes=tuple(values), gradient_norm=norm))
    return replace(chain, sft=replace(chain.sft, contrast=replace(contrast, directions=tuple(changed))))


@pytest.mark.parametrize(
    ("alone", "negative", "share", "positive", "side"),
    [
        (0.2, -0.1, 0.5, 0.25, "positive"),
        (0.2, 0.3, 1.0, -0.1, "negative"),
        (0.3, 0.2, 0.5, 0.2, "both"),
        (-0.2, -0.1, 0.5, -0.15, "outside"),
    ],
)
def test_a_cause_is_named_where_the_trial_steps_have_its_signs(
    alone: float, negative: float, share: float, positive: float, side: str, chain: Chain
) -> None:
    found = cause(tried(chain, alone=alone, negative=negative, share=share), 3, 0.62)
    assert found is not None
    assert (found.alone, found.negative, found.side) == (alone, negative, side)
    assert found.positive == pytest.approx(positive)


def test_the_reason_says_what_the_record_does_not(chain: Chain) -> None:
    moved = sharing(chain, net=0.01, moved=0.02, rest=0.6)
    inside = reason(tried(moved, alone=0.2, negative=-0.1), 3, VOICE)
    assert "So this prompt's positive answers, #0, are enough to explain the direction:" in inside
    assert "the record does not say" in inside
    outside = reason(tried(moved, alone=-0.2, negative=-0.1), 3, VOICE)
    assert "this prompt's pushes do not explain it" in outside
    unknown = reason(replace(moved, sft=None), 3, VOICE)
    assert unknown.endswith("the record does not say which.")
    assert "enough to explain" not in unknown


def test_the_largest_change_of_probability_leads_not_the_largest_factor(chain: Chain) -> None:
    assert chain.effect is not None
    chances = {0: (0.175, 0.335), 1: (1e-12, 9e-12), 3: (0.5, 0.1)}
    answers = tuple(
        replace(answer, before=math.log(chances[answer.member][0]), after=math.log(chances[answer.member][1]), agreed=True)
        if answer.kind == "rollout" and answer.member in chances
        else answer
        for answer in chain.effect.answers
    )
    up = {0: 1.0, 1: 1.5, 3: -1.0}
    members = tuple(replace(found, recorded=up.get(found.member, 0.0)) for found in chain.advantage.members)
    found = replace(chain, effect=replace(chain.effect, answers=answers), advantage=replace(chain.advantage, members=members))
    assert leading(found, [0, 1, 3]) == [3, 0]
    assert leading(replace(found, effect=None), [0, 1, 3]) == [1, 3]
    first, second = headlines(found, VOICE)[:2]
    assert "50% → 10%" in first
    assert "17.5% → 33.5%" in second


def test_the_shown_divisor_gives_the_shown_advantage(chain: Chain) -> None:
    section = next(section for section in page(chain).sections if section.key == "advantage")
    table = next(block for block in section.blocks if isinstance(block, Table))
    for line in table.lines:
        if "left out" not in line.cells[1]:
            _, _, _, distance, divisor, advantage = (cell.replace("−", "-") for cell in line.cells)
            assert divisor == "0.5001"
            assert float(advantage) == pytest.approx(float(distance) / float(divisor), abs=5e-5)


def test_a_column_for_clipping_only_where_something_could_be_clipped(run: Run, chain: Chain) -> None:
    def titles(shown: Chain) -> tuple[str, ...]:
        section = next(section for section in page(shown).sections if section.key == "weights")
        table = [block for block in unfolded(section.blocks) if isinstance(block, Table)][-1]
        return tuple(column.title for column in table.columns)

    assert "clip" not in titles(chain)
    assert "clip" in titles(explain_chain(run, 1, group=0, update=1))


def test_an_answer_that_never_ended_is_said_to_be_unread(chain: Chain) -> None:
    def cut(member: int, reason: str) -> Chain:
        members = [replace(found, cut=found.member == member, num_tokens=24) for found in chain.scores.members]
        lines = tuple(replace(score, reason=reason) for score in members[member].scores)
        members[member] = replace(members[member], scores=lines)
        return replace(chain, scores=replace(chain.scores, members=tuple(members)))

    assert "Not read, since they never ended (limit 24 tokens): #1." in html_page(page(cut(1, UNREAD)))
    read = html_page(page(cut(1, "fine as far as it goes")))
    assert "Not read" not in read
    assert "Cut off at the limit of 24 tokens, and scored as far as they went: #1." in read


def test_numbers_are_checked_and_explanations_are_not(chain: Chain) -> None:
    told = {section.key: section for section in page(chain).sections}
    for key in ("overview", "checks"):
        assert any("Checked are the numbers" in str(block) for block in told[key].blocks)


def test_what_sft_trains_and_does_to_the_preferred_answers(chain: Chain) -> None:
    assert chain.sft is not None
    contrast = chain.sft.contrast
    by = {"sft": -0.02, "grpo": math.log(1.2), "grpo_negative": 0.0}
    directions = tuple(replace(d, changes=(by[d.name],) * len(contrast.answers)) for d in contrast.directions)
    found = replace(chain, sft=replace(chain.sft, contrast=replace(contrast, directions=directions, target="member 3")))
    section = next(section for section in page(found).sections if section.key == "sft")
    assert "SFT on #3 trains its" in section.headline
    lowered = "It lowers the answers that the scores preferred, #0, slightly (in a short step of it #0 ×\u00a00.980)."
    assert lowered in section.headline
    assert section.headline.endswith("this prompt's own gradient: #0 ×\u00a01.200.")
