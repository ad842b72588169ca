"""docs/health.md, printed from the table of rules."""

from __future__ import annotations

from toishi.health.alarm import Rule
from toishi.health.rules import RULES

_OPENING = """# Health while training

After every step the rules below look at the whole run. A rule that finds something says it once, with the numbers it saw and
what to do, cheapest first; it is printed and written to `events.jsonl` (kind `health`).

- **note**: good news, or an expectation set right. **warn**: said, and the run goes on. **stop**: the run ends after this step,
  with the step's record written and a checkpoint to go on from.
- *Within*: at the default limit, a plain occurrence has been named after so many steps.
- The rules compare with the run's own start and noise. Falling entropy, shorter answers, tied groups and many cut answers at
  the start are what success looks like when the reward rises with them; the rules know that.

Change a rule in the recipe:

```yaml
health:
  actions: {truncation: off, reward_drop: stop}   # warn, stop or off
  limits: {clipping: 0.5}                         # the number in the column "limit"
  max_failed_share: 0.5
  max_sampler_gap: null                           # null = by precision
```

| rule | action | watches | limit | within |
|---|---|---|---|---|
"""

_REMEDIES = """
## What to do

Before anything else: stop and read 20 answers with their scores (`toishi explain RUN`). Most alarms are a reward that pays for
the wrong thing.

| rule | remedy, cheapest first |
|---|---|
"""


def page() -> str:
    """The text of docs/health.md."""
    rows = "".join(_row(rule) for rule in RULES)
    remedies = "".join(f"| `{rule.name}` | {rule.remedy} |\n" for rule in RULES)
    return _OPENING + rows + _REMEDIES + remedies


def _row(rule: Rule) -> str:
    limit = " ".join(part for part in (f"{rule.limit:g}" if rule.limit is not None else "", rule.limit_is) if part) or "–"
    steps = "1 step" if rule.within == 1 else f"{rule.within} steps"
    return f"| `{rule.name}` | {rule.action} | {rule.watches} | {limit} | {steps} |\n"
