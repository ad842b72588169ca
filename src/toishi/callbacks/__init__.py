"""For people who train with another library: a callback that writes toishi's run folder while that library trains.

from toishi.callbacks import TRLRecorder
trainer = GRPOTrainer(..., callbacks=[TRLRecorder("runs/trl")])
"""

from __future__ import annotations

import importlib.util

from toishi.errors import MissingExtraError

if importlib.util.find_spec("trl") is None:
    raise MissingExtraError("trl", extra="trl", purpose="TRLRecorder")

from toishi.callbacks.recorder import TRLRecorder

__all__ = ["TRLRecorder"]
