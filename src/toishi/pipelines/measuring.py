"""Every model of a pipeline on the same held-out prompts, with the same random numbers.

Decisions:
1. A measurement is kept under the content of the model and of what it is measured on, so it is made once.
2. Seed and step are the same for all models: differences are paired prompt by prompt, and greedy and sampled answers differ by
   the weights alone.
3. The precision is that which the pipeline decided once (running.py): a gain is no matter of rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toishi.collecting.samples import sha256_of
from toishi.config import Config
from toishi.display import Display
from toishi.evaluate import Evaluation
from toishi.pipelines.contents import IDENTITY_FREE, with_contents
from toishi.pipelines.store import Store
from toishi.record.lines import finite
from toishi.sampler import Sampler, measure_model


def measured_key(config: Config, model_sum: str) -> str:
    """By what the measurement of a model is known."""
    plain = {key: value for key, value in config.model_dump(mode="json").items() if key not in IDENTITY_FREE}
    plain["model"] = {**plain["model"], "name": model_sum}
    return sha256_of(with_contents(plain))


def measure_all(
    store: Store, configs: Mapping[str, Config], model: str, model_sum: str, display: Display
) -> dict[str, list[Evaluation]]:
    """The evaluations of one model by what it is measured on: those that are kept, and the others made now."""
    found: dict[str, list[Evaluation]] = {}
    sampler: Sampler | None = None
    for name, config in configs.items():
        key = measured_key(config, model_sum)
        kept = store.measured(key)
        if kept is None:
            config = config.model_copy(update={"model": config.model.model_copy(update={"name": model})})
            with display.waiting(f"measuring {name}"):
                sampler = sampler or Sampler.open(config.model, seed=config.seed)
                kept = [_record(one) for one in measure_model(config, sampler=sampler)]
            store.keep_measured(key, {"measure": name, "model": model_sum}, kept)
        found[name] = [Evaluation.from_record(one) for one in kept]
    return found


def known(store: Store, configs: Mapping[str, Config], model_sum: str) -> dict[str, list[Evaluation]]:
    """The evaluations of a model that were made already."""
    kept = {name: store.measured(measured_key(config, model_sum)) for name, config in configs.items()}
    return {name: [Evaluation.from_record(one) for one in lines] for name, lines in kept.items() if lines is not None}


def of_mode(evaluations: Sequence[Evaluation], mode: str) -> Evaluation | None:
    """The evaluation of that mode, if there is one."""
    return next((one for one in evaluations if one.mode == mode), None)


def _record(found: Evaluation) -> dict[str, Any]:
    numbers, broken = finite(found.as_record())
    return numbers | broken
