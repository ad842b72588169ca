"""When a configuration has a teacher, and what a teacher cannot have."""

from __future__ import annotations

from typing import Any

_STUDENTS = {
    "lora": "is about what is trained, and a teacher is not: set it to null",
    "chat_template": "is the student's: the teacher reads the student's tokens",
}


def require_teacher(config: Any) -> None:
    """Raises ValueError for a missing teacher, one that nothing asks, and keys of it that have no effect."""
    row, teacher = config.algorithm, config.teacher
    if row.needs_teacher and teacher is None:
        raise ValueError(f"algorithm '{row.name}' learns from a teacher: set teacher to {{name: a folder or hub id}}")
    if teacher is None:
        return
    if not row.needs_teacher:
        raise ValueError(
            f"teacher: algorithm '{row.name}' asks none; choose gkd, opd or opd_sampled, set algorithm.divergence_coef, or "
            "leave teacher out"
        )
    for key, why in _STUDENTS.items():
        if getattr(teacher, key) is not None:
            raise ValueError(f"teacher.{key} {why}")
    if teacher.device != "auto":
        raise ValueError(f"teacher.device={teacher.device} has no effect: it stands where the student does; leave it out")
    if teacher.endpoint is not None and config.sampling.temperature != 1:
        raise ValueError(
            "a served teacher tells log-probs at temperature 1: set sampling.temperature to 1, got "
            f"{config.sampling.temperature:g}"
        )
    if config.record.trace_influence and row.divergence_coef > 0:
        raise ValueError(
            "record.trace_influence divides a change among answers by their token weights, and a divergence from whole "
            "distributions has none: set it to false"
        )
