"""The trackers that a recipe names, at work on a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from toishi.display import Display
from toishi.session import Session
from toishi.track import Tracker, Tracking
from toishi.track.tensorboard import TensorBoardTracker
from toishi.track.wandb import WandbTracker

TRACKERS: Mapping[str, Callable[[], Tracker]] = {"wandb": WandbTracker, "tensorboard": TensorBoardTracker}


def tracking(session: Session, display: Display) -> Tracking:
    """A context in which the run is followed; what a tracker has to say becomes an event and a line on the display."""

    def say(text: str) -> None:
        session.writer.write_event({"step": session.step, "kind": "tracker", "message": text})
        display.notice(text)

    names = dict.fromkeys(session.config.track)
    return Tracking({name: TRACKERS[name] for name in names}, session.writer.folder, session.step, say)
