"""What is said of an update as a whole: the optimizer's numbers, and why no account of it is given."""

from __future__ import annotations

from toishi.record.influence import OptimizerNumbers
from toishi.session import Learner

LEAST_SURVIVED, MOST_SURVIVED = 0.5, 2.0
LARGEST_SUM_ERROR = 0.25


def refusal(survived: float | None, sum_error: float) -> str:
    """Why no account is given; empty for a given one. The arguments are the fields of `record.influence.Influence`."""
    if survived is None:
        return "the update asked for no change"
    if sum_error > LARGEST_SUM_ERROR:
        return (
            f"the gradients of the texts do not add up to the update's gradient (off by {sum_error:.1%}): this model computes "
            "a text on its own otherwise than the update did"
        )
    if survived < LEAST_SURVIVED:
        return (
            f"only {survived:.0%} of the intended step is in the stored weights: the rest was lost in rounding, so what moved "
            "is chance. Raise optimizer.lr, or set model.dtype=float32"
        )
    if survived > MOST_SURVIVED:
        return (
            f"the weights that the model computes with went {survived:.1f} times as far along the step as intended: they are "
            "rounded, and many lay on the border between two numbers, so what moved is mostly rounding. Raise optimizer.lr, or "
            "set model.dtype=float32"
        )
    return ""


def optimizer_numbers(learner: Learner) -> OptimizerNumbers:
    """The optimizer's options, and the number of the update."""
    options, optimizer = learner.optimizer.param_groups[0], learner.optimizer
    adam = "betas" in options
    counts = [float(state["step"]) for state in optimizer.state.values() if "step" in state]
    return OptimizerNumbers(
        name=type(optimizer).__name__.lower(),
        lr=float(options["lr"]),
        weight_decay=float(options["weight_decay"]),
        max_grad_norm=learner.settings.optimizer.max_grad_norm,
        beta1=options["betas"][0] if adam else 0.0,
        beta2=options["betas"][1] if adam else 0.0,
        eps=options["eps"] if adam else 0.0,
        count=int(max(counts, default=0.0)),
        momentum=float(options.get("momentum", 0.0)),
    )
