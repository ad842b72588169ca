"""Choices of a row that contradict or silently undo one another: what is refused, why, and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_NORMALISES = "combine 'normalise_each' (GDPO) compares each reward inside its group: "
CONTRADICTIONS: tuple[tuple[Callable[[Any], bool], str], ...] = (
    (
        lambda row: row.kl == "none" and row.kl_coef > 0,
        "kl_coef={row.kl_coef} has no effect while kl is 'none'; choose k2, k3, ratio_k3 or k1_in_reward",
    ),
    (
        lambda row: not row.policy_term and row.kl == "k1_in_reward" and row.kl_coef > 0,
        "kl 'k1_in_reward' acts through the rewards, which policy_term=false leaves out of the loss: it would have no effect; "
        "choose k2, k3 or ratio_k3",
    ),
    (
        lambda row: row.truncation == "soft_penalty" and row.soft_penalty_tokens == 0,
        "truncation 'soft_penalty' needs soft_penalty_tokens, the length of the ramp before the token limit",
    ),
    (
        lambda row: row.truncation != "soft_penalty" and row.soft_penalty_tokens > 0,
        "soft_penalty_tokens={row.soft_penalty_tokens} has no effect unless truncation is 'soft_penalty'",
    ),
    (
        lambda row: row.scale == "group_mean" and row.baseline != "group_mean",
        "scale 'group_mean' (MaxRL) divides the distance from the group mean: baseline must be 'group_mean'",
    ),
    (
        lambda row: (
            row.scale == "group_mean"
            and (
                row.reward_map == "plus_minus"
                or row.truncation == "soft_penalty"
                or (row.kl == "k1_in_reward" and row.kl_coef > 0)
            )
        ),
        "scale 'group_mean' (MaxRL) needs rewards >= 0: reward_map 'plus_minus', truncation 'soft_penalty' and "
        "kl 'k1_in_reward' make them negative; choose another scale, or k2, k3 or ratio_k3",
    ),
    (
        lambda row: row.scale == "group_std" and row.baseline not in ("group_mean", "leave_one_out"),
        "scale 'group_std' with baseline '{row.baseline}' divides rewards that are not centred in their group by its spread, "
        "which is near 0 for a nearly tied group; choose baseline 'group_mean' or 'leave_one_out', or scale 'batch_std'",
    ),
    (
        lambda row: row.scale == "batch_std" and row.baseline == "none",
        "scale 'batch_std' with baseline 'none' divides rewards that are not centred by their spread, which is near 0 when "
        "nearly all are equal; choose a baseline",
    ),
    (
        lambda row: row.filter == "keep_best" and (row.baseline != "none" or row.scale != "none"),
        "filter 'keep_best' gives the best answers advantage 1 and the others 0, so baseline '{row.baseline}' and scale "
        "'{row.scale}' would have no effect; set both to 'none'",
    ),
    (
        lambda row: row.reference_every > 0 and not row.needs_step_0,
        "reference_every={row.reference_every} has no effect: no KL term and no credit compares with a reference of this run; "
        "choose kl k2, k3, ratio_k3 or k1_in_reward with a kl_coef, or set it to 0",
    ),
    (
        lambda row: row.reference == "teacher" and not row.needs_reference,
        "reference 'teacher' has no effect: no KL term and no credit asks for it; choose credit 'teacher', or kl k2, k3 or "
        "ratio_k3 with a kl_coef",
    ),
    (
        lambda row: row.credit == "teacher" and row.reference != "teacher",
        "credit 'teacher' compares with the teacher's log-probs: set reference to 'teacher', got '{row.reference}'",
    ),
    (
        lambda row: (
            row.credit == "teacher"
            and (row.baseline != "none" or row.scale != "none" or row.filter != "none" or row.combine != "sum")
        ),
        "credit 'teacher' does not look at rewards: set baseline, scale and filter to 'none' and combine to 'sum', got "
        "'{row.baseline}', '{row.scale}', '{row.filter}', '{row.combine}'",
    ),
    (
        lambda row: row.credit == "teacher" and row.source != "sampled",
        "credit 'teacher' is a policy gradient on the policy's own answers: set source to 'sampled', got '{row.source}'",
    ),
    (
        lambda row: row.source == "mixed" and (row.policy_term or row.off_policy != "none"),
        "source 'mixed' puts written answers, which nobody sampled or scored, beside sampled ones: only a divergence from a "
        "teacher means the same for both. Set policy_term to false and off_policy to 'none', as in row 'gkd'",
    ),
    (
        lambda row: row.predicts == "score" and row.divergence_coef > 0,
        "divergence_coef={row.divergence_coef} compares next-token distributions, and predicts 'score' has none; set it to 0",
    ),
    (
        lambda row: row.source != "sampled" and row.off_policy != "none",
        "off_policy '{row.off_policy}' compares with the sampler's log-probs, and written answers have none; set it to 'none'",
    ),
    (
        lambda row: row.source == "written" and row.needs_group,
        "source 'written' gives one answer to a prompt, and baseline '{row.baseline}', scale '{row.scale}' and filter "
        "'{row.filter}' compare several; set them to 'none'",
    ),
    (
        lambda row: (
            row.credit == "preference"
            and (
                row.baseline != "none" or row.scale != "none" or row.filter not in ("none", "drop_tied") or row.combine != "sum"
            )
        ),
        "credit 'preference' compares the best answer of a group with the worst: set baseline, scale and filter to 'none' "
        "(or filter to 'drop_tied') and combine to 'sum', got '{row.baseline}', '{row.scale}', '{row.filter}', '{row.combine}'",
    ),
    (
        lambda row: row.credit == "preference" and (row.surrogate != "score_function" or row.reduction != "sequence_sum"),
        "credit 'preference' is a sum over an answer's log-probs: set surrogate to 'score_function' and reduction to "
        "'sequence_sum', got '{row.surrogate}' and '{row.reduction}'",
    ),
    (
        lambda row: row.source == "written_pairs" and row.credit != "preference",
        "source 'written_pairs' gives a chosen and a rejected answer, which credit 'preference' compares; got '{row.credit}'",
    ),
    (
        lambda row: (row.baseline == "critic") != (row.credit == "gae"),
        "baseline 'critic' and credit 'gae' need each other: values become advantages of tokens by their surprises; got "
        "baseline '{row.baseline}' and credit '{row.credit}'",
    ),
    (
        lambda row: row.baseline == "critic" and row.scale != "none",
        "scale '{row.scale}' divides what is left of a reward, and with a critic every token has its own difference: set scale "
        "to 'none', and whiten to true for advantages of spread 1",
    ),
    (
        lambda row: row.baseline == "critic" and (row.source != "sampled" or not row.policy_term),
        "baseline 'critic' is for sampled answers that teach the policy: set source to 'sampled' and policy_term to true, got "
        "'{row.source}' and {row.policy_term}",
    ),
    (
        lambda row: (
            row.baseline != "critic"
            and (
                row.gamma != 1
                or row.gae_lambda != 1
                or row.whiten
                or row.value_clip is not None
                or row.truncation == "bootstrap"
            )
        ),
        "gamma, gae_lambda, whiten, value_clip and truncation 'bootstrap' are about a critic's values, and baseline "
        "'{row.baseline}' has none; leave them out, or choose baseline 'critic' with credit 'gae'",
    ),
    (
        lambda row: row.predicts == "score" and (row.source != "written_pairs" or row.credit != "preference"),
        "predicts 'score' learns from pairs (a score that is sampled from does not exist): set source to 'written_pairs' and "
        "credit to 'preference', got '{row.source}' and '{row.credit}'",
    ),
    (
        lambda row: row.predicts == "score" and (row.kl != "none" or row.entropy_coef != 0 or not row.policy_term),
        "predicts 'score' has no distribution over tokens: set kl to 'none', entropy_coef to 0 and policy_term to true, got "
        "'{row.kl}', {row.entropy_coef} and {row.policy_term}",
    ),
    (
        lambda row: row.predicts != "score" and row.centring > 0,
        "centring={row.centring} holds scores near 0, and predicts '{row.predicts}' has none; set it to 0",
    ),
    *(
        (lambda row, refused=refused: row.combine == "normalise_each" and refused(row), _NORMALISES + why)
        for refused, why in (
            (
                lambda row: row.baseline not in ("group_mean", "leave_one_out") or row.scale not in ("none", "group_std"),
                "baseline must be 'group_mean' or 'leave_one_out' and scale 'group_std' or 'none', got '{row.baseline}' and "
                "'{row.scale}'",
            ),
            (
                lambda row: row.reward_map != "identity" or row.truncation == "soft_penalty",
                "reward_map '{row.reward_map}' and truncation '{row.truncation}' act on a sum that is never made; leave them "
                "out (a length penalty can be a reward of its own)",
            ),
            (
                lambda row: row.credit != "sequence" or row.statistics_over != "rollouts",
                "credit must be 'sequence' and statistics_over 'rollouts'",
            ),
            (
                lambda row: row.kl == "k1_in_reward" and row.kl_coef > 0,
                "kl 'k1_in_reward' is part of no reward; choose k2, k3 or ratio_k3",
            ),
        )
    ),
)
"""(what is refused of a row, why and the remedy)."""
