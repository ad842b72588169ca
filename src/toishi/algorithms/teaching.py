"""The numbers of a step that a served teacher adds."""

from __future__ import annotations

from collections.abc import Mapping

SERVED_METRICS: Mapping[str, tuple[str, str, str]] = {
    "teacher/rest_mass": (
        "share", "probability outside the words that a served teacher tells, mean over tokens; null for others",
        "above 0.1: raise teacher.top_logprobs, the divergence is a loose lower bound",
    ),
    "teacher/untold_tokens": (
        "tokens", "tokens of the answers whose log-prob a served teacher does not tell; null for others",
        "not 0: their log-probs are upper bounds",
    ),
}  # fmt: skip
"""Name -> unit, meaning, what to look for."""
