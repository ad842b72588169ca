"""toishi (砥石, whetstone): post-train a language model with rewards, and see what every step changed.

    import toishi

    def short(completions, **columns):
        return [-len(completion[-1]["content"]) for completion in completions]

    result = toishi.train("sums", rewards=[short], overrides={"train.steps": 5})
    toishi.explain(result.folder, step=5)

`import toishi` is quick: torch and transformers are imported when a name that needs them is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toishi.algorithms.rows import Algorithm, algorithm
    from toishi.api import explain, resume, train, whatif
    from toishi.config import Config, load_config
    from toishi.errors import (
        ConfigError,
        DataError,
        EngineError,
        HealthStop,
        MissingExtraError,
        ModelError,
        NumericsError,
        OutOfMemoryError,
        RecordError,
        RewardError,
        ToishiError,
    )
    from toishi.evaluate import Evaluation
    from toishi.loop import Result
    from toishi.recipes import load_recipe
    from toishi.record.reader import Run
    from toishi.rewards.base import Judgement, Reward
    from toishi.rewards.function import FunctionReward
    from toishi.tasks.base import Task
    from toishi.tasks.given import task_from_rows
    from toishi.types import Completion, Group, Prompt, Rollout, RolloutId, Score, StepReport, Update

__version__ = "0.1.0"

__all__ = [
    "Algorithm",
    "Completion",
    "Config",
    "ConfigError",
    "DataError",
    "EngineError",
    "Evaluation",
    "FunctionReward",
    "Group",
    "HealthStop",
    "Judgement",
    "MissingExtraError",
    "ModelError",
    "NumericsError",
    "OutOfMemoryError",
    "Prompt",
    "RecordError",
    "Result",
    "Reward",
    "RewardError",
    "Rollout",
    "RolloutId",
    "Run",
    "Score",
    "StepReport",
    "Task",
    "ToishiError",
    "Update",
    "__version__",
    "algorithm",
    "explain",
    "load_config",
    "load_recipe",
    "resume",
    "task_from_rows",
    "train",
    "whatif",
]

_HOMES = {
    "toishi.algorithms.rows": ("Algorithm", "algorithm"),
    "toishi.api": ("explain", "resume", "train", "whatif"),
    "toishi.config": ("Config", "load_config"),
    "toishi.errors": (*(name for name in __all__ if name.endswith("Error")), "HealthStop"),
    "toishi.evaluate": ("Evaluation",),
    "toishi.loop": ("Result",),
    "toishi.recipes": ("load_recipe",),
    "toishi.record.reader": ("Run",),
    "toishi.rewards.base": ("Judgement", "Reward"),
    "toishi.rewards.function": ("FunctionReward",),
    "toishi.tasks.base": ("Task",),
    "toishi.tasks.given": ("task_from_rows",),
    "toishi.types": ("Completion", "Group", "Prompt", "Rollout", "RolloutId", "Score", "StepReport", "Update"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _HOME_OF:
            raise AttributeError(f"module 'toishi' has no attribute '{name}'")
        return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
