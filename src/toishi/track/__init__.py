"""Other programs that show a run: W&B, TensorBoard. They follow the record; a run does not know that they exist."""

from toishi.track.following import Tracking
from toishi.track.seen import Seen, Tracker

__all__ = ["Seen", "Tracker", "Tracking"]
