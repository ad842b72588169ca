"""Shared beginnings: the tree against a plain count, the net push, and the reasons that are given from it."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toishi.explanation.chain.build import explain_chain
from toishi.explanation.chain.model import Chain, SharedStart
from toishi.explanation.chain.reasons import beginning, reason
from toishi.explanation.chain.shared import shared_starts
from toishi.explanation.chain.story import page
from toishi.explanation.chain.story_shared import partings
from toishi.explanation.chain.voice import Voice
from toishi.explanation.page.blocks import Table
from toishi.record import Run

VOICE = Voice.of("en")
answers = st.lists(st.lists(st.integers(0, 2), min_size=0, max_size=6), min_size=1, max_size=5)


@given(answers)
def test_the_tree_holds_each_answer_once_and_adds_up_who_shares_a_token(ids: list[list[int]]) -> None:
    pushes = {member: [float(10**member)] * len(tokens) for member, tokens in enumerate(ids)}
    texts = {member: [str(token) for token in tokens] for member, tokens in enumerate(ids)}
    starts = shared_starts(dict(enumerate(ids)), texts, pushes)
    for member, tokens in enumerate(ids):
        path = sorted((start for start in starts if member in start.members), key=lambda start: start.begin)
        assert [text for start in path for text in start.texts] == texts[member]
        nets = [push for start in path for push in start.pushes]
        for place, net in enumerate(nets):
            same = [other for other, found in enumerate(ids) if found[: place + 1] == tokens[: place + 1]]
            assert net == sum(10.0**other for other in same)
    assert all(start.begin == 0 for start in starts if start.depth == 0)


@pytest.fixture(scope="module")
def chain(run: Run) -> Chain:
    return explain_chain(run, 1, group=0)


def test_net_pushes_are_minus_the_recorded_weights_added_up(chain: Chain) -> None:
    assert chain.weights is not None
    firsts = [start for start in chain.weights.starts if start.begin == 0]
    assert sorted(member for start in firsts for member in start.members) == [0, 1, 2, 3]
    own = {found.member: found.tokens[0].weight for found in chain.weights.members if found.computed}
    for start in firsts:
        assert start.pushes[0] == pytest.approx(-math.fsum(own.get(member, 0.0) for member in start.members))


def sharing(chain: Chain, *, net: float, moved: float, rest: float) -> Chain:
    """#3, pushed down, shares its first two tokens with #0; the step moved them by `moved` nats, its others by `rest`."""
    assert chain.weights is not None
    assert chain.effect is not None
    tokens = next(found.tokens for found in chain.weights.members if found.member == 3)
    texts = tuple(token.text for token in tokens)
    own = tuple(-token.weight for token in tokens[2:])
    starts = (
        SharedStart(members=(0, 3), depth=0, begin=0, texts=texts[:2], pushes=(net, net)),
        SharedStart(members=(3,), depth=1, begin=2, texts=texts[2:], pushes=own),
        *(start for start in chain.weights.starts if start.members in ((1,), (2,))),
        SharedStart(members=(0,), depth=1, begin=2, texts=texts[2:], pushes=own),
    )
    effects = []
    for answer in chain.effect.answers:
        changes = [moved / 2] * 2 + [rest / (len(answer.tokens) - 2)] * (len(answer.tokens) - 2)
        moves = tuple(replace(token, after=token.before + by) for token, by in zip(answer.tokens, changes, strict=True))
        mine = replace(answer, tokens=moves, change=moved + rest, agreed=False)
        effects.append(mine if (answer.kind, answer.member) == ("rollout", 3) else answer)
    weights = replace(chain.weights, starts=starts)
    return replace(chain, weights=weights, effect=replace(chain.effect, answers=tuple(effects)))


def test_a_shared_beginning_is_given_as_the_reason_where_it_is_one(chain: Chain) -> None:
    found = sharing(chain, net=0.01, moved=0.6, rest=0.1)
    start = beginning(found, 3)
    assert start is not None
    assert (start.length, start.others, start.net) == (2, (0,), 0.01)
    text = reason(found, 3, VOICE)
    assert "#3 begins like #0" in text
    assert "all pushes together are +0.01: up" in text
    assert "made most of the difference: these tokens became ×\u00a01.822 as likely" in text


def test_a_shared_beginning_that_moved_little_is_not_blamed(chain: Chain) -> None:
    text = reason(sharing(chain, net=0.01, moved=0.02, rest=0.6), 3, VOICE)
    assert "So most of the move is in tokens that no other answer pushed directly" in text
    assert re.search("at place [2-7],", text)  # they moved equally, to rounding
    assert "×\u00a01.822" in text
    same = reason(sharing(chain, net=-0.01, moved=0.02, rest=0.6), 3, VOICE)
    assert "there all pushes together point down as well" in same


def test_an_answer_of_its_own_is_said_to_share_nothing(chain: Chain) -> None:
    assert chain.weights is not None
    alone = replace(chain, weights=replace(chain.weights, starts=()))
    assert reason(alone, 3, VOICE).startswith("#3 shares no beginning")


def test_the_page_shows_beginnings_and_partings(chain: Chain) -> None:
    found = sharing(chain, net=0.01, moved=0.6, rest=0.1)
    weights = next(section for section in page(found).sections if section.key == "weights")
    tree = next(block for block in weights.blocks if isinstance(block, Table) and block.columns[0].title == "beginning")
    assert [line.cells[1] for line in tree.lines][:2] == ["#0, #3", "#3"]
    assert tree.lines[0].cells[2:4] == ("2", "+0.01")
    for chart in partings(chain, VOICE):
        assert len(chart.items) > 1
        assert sum(before for _, before, _ in chart.items) <= 1.0 + 1e-6
