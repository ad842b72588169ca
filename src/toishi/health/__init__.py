"""Live rules over a run's metrics: each names a fault in words, with its evidence and a remedy. See docs/health.md."""

from toishi.health.alarm import Action, Alarm, Rule
from toishi.health.examine import already_said, check_settings, examine
from toishi.health.rules import RULES

__all__ = ["RULES", "Action", "Alarm", "Rule", "already_said", "check_settings", "examine"]
