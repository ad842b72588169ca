"""Divergences from a teacher: numbers worked out by hand, gradients by formula and by autograd of the plain definition."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from toishi.ops.divergence import completed, divergence, divergences, with_rest

BETAS = [0.0, 0.1, 0.5, 0.9, 1.0]
CPU = torch.device("cpu")


def logs(*rows: tuple[float, ...]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64).log()


def test_three_words_by_hand() -> None:
    """Student (.5, .3, .2), teacher (.2, .2, .6)."""
    student, teacher = logs((0.5, 0.3, 0.2)), logs((0.2, 0.2, 0.6))
    # .2 ln .4 + .2 ln (2/3) + .6 ln 3 = -.183258 - .081093 + .659167
    assert divergence(student, teacher, 0.0).item() == pytest.approx(0.394816, abs=1e-6)
    # .5 ln 2.5 + .3 ln 1.5 + .2 ln (1/3) = .458145 + .121640 - .219722
    assert divergence(student, teacher, 1.0).item() == pytest.approx(0.360062, abs=1e-6)
    # b = .5: m = (.35, .25, .4). KL(p||m) = .2 ln(.2/.35) + .2 ln .8 + .6 ln 1.5 = -.111923 - .044629 + .243279 = .086727
    #         KL(q||m) = .5 ln(.5/.35) + .3 ln 1.2 + .2 ln .5 = .178337 + .054696 - .138629 = .094404
    assert divergence(student, teacher, 0.5).item() == pytest.approx(0.090566, abs=1e-6)
    # b = .25: m = .25 p + .75 q = (.425, .275, .3). KL(p||m) = .2 ln(.2/.425) + .2 ln(.2/.275) + .6 ln 2
    #        = -.150754 - .063691 + .415888 = .201443;  KL(q||m) = .5 ln(.5/.425) + .3 ln(.3/.275) + .2 ln(2/3)
    #        = .081259 + .026103 - .081093 = .026270;   .25 * .201443 + .75 * .026270
    assert divergence(student, teacher, 0.25).item() == pytest.approx(0.070063, abs=1e-6)


@pytest.mark.parametrize("beta", BETAS)
def test_equal_distributions_are_not_apart_and_others_are(beta: float) -> None:
    draw = torch.Generator().manual_seed(0)
    one, other = (torch.log_softmax(torch.randn(5, 7, generator=draw, dtype=torch.float64), -1) for _ in range(2))
    assert divergence(one, one, beta).abs().max() < 1e-12
    assert divergence(one, other, beta).min() > 1e-3


@pytest.mark.parametrize("beta", [0.1, 0.5, 0.9])
def test_between_the_ends_it_is_bounded(beta: float) -> None:
    bound = beta * math.log(1 / beta) + (1 - beta) * math.log(1 / (1 - beta))
    found = divergence(logs((1.0, 0.0)), logs((0.0, 1.0)), beta).item()
    assert found == pytest.approx(bound, abs=1e-12)


def by_definition(logits: Tensor, teacher: Tensor, beta: float) -> Tensor:
    """Sums of p log(p/q) over probabilities, one row at a time."""
    q, p = torch.softmax(logits, -1), teacher.exp()
    rows = []
    for a, b in zip(p, q, strict=True):
        m = b if beta == 0 else a if beta == 1 else beta * a + (1 - beta) * b
        of_teacher, of_student = (a * (a / m).log()).sum(), (b * (b / m).log()).sum()
        rows.append(of_teacher if beta == 0 else of_student if beta == 1 else beta * of_teacher + (1 - beta) * of_student)
    return torch.stack(rows)


@pytest.mark.parametrize("beta", BETAS)
def test_gradients_are_those_of_the_definition_in_float64_however_places_are_split(
    beta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = torch.Generator().manual_seed(1)
    logits = (2 * torch.randn(9, 11, generator=draw, dtype=torch.float64)).requires_grad_()
    teacher = torch.log_softmax(2 * torch.randn(9, 11, generator=draw, dtype=torch.float64), -1)
    weights = torch.rand(9, generator=draw, dtype=torch.float64)
    expected = by_definition(logits, teacher, beta)
    (wanted,) = torch.autograd.grad((weights * expected).sum(), logits)
    for numbers in (11, 40, 1 << 20):  # one place, three, and all at a time
        monkeypatch.setattr("toishi.ops.divergence.BLOCK_NUMBERS", numbers)
        found = divergences(lambda places: (torch.log_softmax(logits[places], -1), teacher[places]), 9, 11, beta, CPU)
        (gradient,) = torch.autograd.grad((weights * found).sum(), logits)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(gradient, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_the_gradient_is_the_formula_of_the_docstring(beta: float) -> None:
    draw = torch.Generator().manual_seed(2)
    logits = torch.randn(3, 6, generator=draw, dtype=torch.float64).requires_grad_()
    teacher = torch.log_softmax(torch.randn(3, 6, generator=draw, dtype=torch.float64), -1)
    (found,) = torch.autograd.grad(divergence(torch.log_softmax(logits, -1), teacher, beta).sum(), logits)
    log_q, p = torch.log_softmax(logits, -1).detach(), teacher.exp()
    q = log_q.exp()
    mixed = (beta * p + (1 - beta) * q).log()
    apart = (q * (log_q - mixed)).sum(1, keepdim=True)
    formula = q - p if beta == 0 else (1.0 if beta == 1 else 1 - beta) * q * (log_q - mixed - apart)
    torch.testing.assert_close(found, formula, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("beta", BETAS)
def test_known_words_and_one_event_for_the_rest_give_a_lower_bound_that_grows_with_the_words(beta: float) -> None:
    draw = torch.Generator().manual_seed(3)
    student, teacher = (torch.log_softmax(2 * torch.randn(4, 12, generator=draw, dtype=torch.float64), -1) for _ in range(2))
    whole = divergence(student, teacher, beta)
    bounds = []
    for count in (1, 4, 11):
        told, words = teacher.topk(count)
        bounds.append(divergence(with_rest(student, words), completed(told), beta))
        torch.testing.assert_close(with_rest(teacher, words), completed(told), rtol=1e-9, atol=1e-9)
    assert bool((bounds[0] <= bounds[1] + 1e-12).all())
    assert bool((bounds[1] <= bounds[2] + 1e-12).all())
    torch.testing.assert_close(bounds[2], whole, rtol=1e-8, atol=1e-10)  # eleven of twelve, so the rest is one word


def test_words_that_are_impossible_leave_gradients_finite() -> None:
    logits = torch.tensor([[0.0, 1.0, -torch.inf]], dtype=torch.float64, requires_grad=True)
    for beta in BETAS:
        (found,) = torch.autograd.grad(divergence(torch.log_softmax(logits, -1), logs((0.5, 0.5, 0.0)), beta).sum(), logits)
        assert bool(torch.isfinite(found).all())


def test_a_beta_outside_is_refused() -> None:
    with pytest.raises(ValueError, match="beta must be in"):
        divergence(logs((0.5, 0.5)), logs((0.5, 0.5)), 1.5)
