"""Made-up posts: held-out troubles are never trained on, and every prompt is a function of seed and place."""

from __future__ import annotations

import pytest

from toishi.config import TaskConfig
from toishi.errors import ConfigError
from toishi.tasks import build_task
from toishi.tasks.posts import PEOPLE, TROUBLES, Posts


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("heldout", [0, 1, 64, (len(TROUBLES) - 1) * len(PEOPLE)])
def test_no_trouble_is_in_both(seed: int, heldout: int) -> None:
    task = Posts(heldout=heldout).build(seed=seed)
    apart = -(-heldout // len(PEOPLE))
    assert (len(task.heldout), len(task.train)) == (heldout, (len(TROUBLES) - apart) * len(PEOPLE))
    told = {prompt.columns["trouble"] for prompt in task.heldout}
    assert not told & {prompt.columns["trouble"] for prompt in task.train}
    assert len({prompt.shown for prompt in task.train + task.heldout}) == len(task.train) + heldout


def test_the_first_held_out_posts_tell_of_different_troubles() -> None:
    first = Posts(heldout=64).build(seed=0).heldout[:7]
    assert len({prompt.columns["trouble"] for prompt in first}) == 7


def test_same_seed_same_posts() -> None:
    one, again, other = (build_task(TaskConfig(name="posts"), seed=seed) for seed in (3, 3, 4))
    assert one.heldout_prompts() == again.heldout_prompts() != other.heldout_prompts()
    assert one.train_prompt(500) == again.train_prompt(500)


def test_what_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"task\.template: 'Sum up' must have \{post\}"):
        Posts(template="Sum up")
    with pytest.raises(ConfigError, match=r"task\.heldout: 240 posts, but at most 230"):
        Posts(heldout=240)
