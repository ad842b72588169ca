"""From completions to rewards: every reward is asked (`asking`), and the parts become one number (`algorithms.composing`)."""

from toishi.scoring.asking import Progress
from toishi.scoring.attacks import AttackReport, AttackRow, attack_cost, try_attacks
from toishi.scoring.dry_run import DryRun, DryRunRow, dry_run
from toishi.scoring.groups import Scoring, score_groups
from toishi.scoring.summary import scoring_summary
from toishi.scoring.usage import usage_since

__all__ = [
    "AttackReport",
    "AttackRow",
    "DryRun",
    "DryRunRow",
    "Progress",
    "Scoring",
    "attack_cost",
    "dry_run",
    "score_groups",
    "scoring_summary",
    "try_attacks",
    "usage_since",
]
