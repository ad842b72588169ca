"""The record: what every step of a run was made of, written while it happens and read back without loss."""

from toishi.record.reader import Run
from toishi.record.writer import RunWriter

__all__ = ["Run", "RunWriter"]
