"""Which micro-batch is chosen, and what a refusal says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.memory.shapes import SMALL, recipe
from toishi.config import Config
from toishi.errors import OutOfMemoryError
from toishi.memory import MemoryPlan, estimate_memory, fixed_budget, plan_memory, telling_what_to_change

MANY = recipe(sampling__max_new_tokens=64, train__group_size=32, evaluation__prompts=0)


def planned(reachable: int | None, config: Config = MANY) -> MemoryPlan:
    return plan_memory(config, SMALL, prompt_tokens=45, reachable=reachable)


def needs(budget: int, config: Config = MANY) -> int:
    return estimate_memory(config, SMALL, prompt_tokens=45, budget=budget).needed


def test_the_usual_budget_where_it_fits_or_nothing_is_known() -> None:
    assert planned(64 * 10**9).micro_batch_tokens == planned(None).micro_batch_tokens == 1280
    assert planned(None).fits is None


def test_a_smaller_one_where_it_does_not() -> None:
    plan = planned(round(needs(640) / 0.95) + 10)
    assert needs(1280) > needs(640)
    assert (plan.micro_batch_tokens, plan.fits) == (640, True)
    plan.require()


def test_a_stated_budget_is_kept() -> None:
    config = recipe(sampling__max_new_tokens=64, train__micro_batch_tokens=2048)
    assert planned(10**9, config).micro_batch_tokens == 2048


def test_a_gpu_takes_larger_ones() -> None:
    assert fixed_budget(recipe(), "cuda:0") == 16384
    assert plan_memory(MANY, replace(SMALL, device="cuda:0"), prompt_tokens=45, reachable=None).micro_batch_tokens == 16384


def test_what_fits_nowhere_is_refused_with_what_lowers_it_most_first() -> None:
    plan = planned(10**9)
    with pytest.raises(OutOfMemoryError, match=r"needs about .* GB at its highest.* and 1\.00 GB can be had") as caught:
        plan.require()
    assert "model.lora={}" in str(caught.value)
    effects = [remedy.saves for remedy in plan.remedies]
    assert effects == sorted(effects, reverse=True)
    assert min(effects) > 0


def test_a_remedy_lowers_by_what_it_says() -> None:
    plan = planned(10**9)
    by_change = {remedy.change: remedy.saves for remedy in plan.remedies}
    halved = recipe(sampling__max_new_tokens=64, train__group_size=32, evaluation__prompts=0, train__prompts_per_step=2)
    before, budget = plan.estimate.needed, plan.micro_batch_tokens
    assert before - needs(budget, halved) < 0.01 * before
    assert "train.prompts_per_step=2" not in by_change
    sgd = recipe(sampling__max_new_tokens=64, train__group_size=32, evaluation__prompts=0, optimizer={"name": "sgd"})
    assert by_change["optimizer.name=sgd (with a larger optimizer.lr)"] == before - needs(budget, sgd)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to"),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    ],
)
def test_an_allocation_that_fails_says_what_to_change(error: Exception) -> None:
    with (
        pytest.raises(OutOfMemoryError, match=r"memory ran out in step 3.*model\.lora"),
        telling_what_to_change(3, planned(None)),
    ):
        raise error


def test_other_errors_pass() -> None:
    with pytest.raises(RuntimeError, match="shapes"), telling_what_to_change(3, None):
        raise RuntimeError("shapes do not match")
