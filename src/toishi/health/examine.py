"""Which alarms fire at the latest step."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from toishi.config import Config, HealthConfig
from toishi.errors import ConfigError, nearest
from toishi.evaluate import Evaluation
from toishi.health.alarm import Action, Alarm, Rule
from toishi.health.history import History, Window
from toishi.health.rules import BY_NAME, RULES


def examine(
    metrics: Sequence[Mapping[str, Any]],
    evaluations: Sequence[Evaluation],
    config: Config,
    said: Collection[str] = (),
    *,
    dtype: str | None = None,
) -> list[Alarm]:
    """The alarms that fire at the latest step of the history, in the order of the table.

    metrics      one mapping per finished step, with `step` and the names of `toishi.metrics.METRICS`
    evaluations  all held-out measurements so far
    said         names of rules that have spoken in this run: each speaks once
    dtype        the compute precision as decided on this machine; by default what the recipe says

    >>> [alarm.rule for alarm in examine([{"step": 1, "reward/mean": float("nan")}], [], Config())]
    ['not_finite']
    """
    if not metrics:
        return []
    history = History(Window(metrics), evaluations, config, dtype or config.model.dtype)
    alarms = []
    for rule in RULES:
        action = config.health.actions.get(rule.name, rule.action)
        if action != "off" and rule.name not in said:
            alarms += _alarm(rule, action, history)
    return alarms


def _alarm(rule: Rule, action: Action, history: History) -> list[Alarm]:
    limit = history.config.health.limits.get(rule.name, rule.limit)
    evidence = rule.find(history, 0.0 if limit is None else limit)
    if evidence is None:
        return []
    return [Alarm(rule=rule.name, action=action, step=history.step, evidence=evidence, remedy=rule.remedy)]


def already_said(events: Iterable[Mapping[str, Any]]) -> set[str]:
    """Names of rules that need not speak again in a resumed run: all that spoke, but those that stopped it.

    >>> sorted(already_said([{"kind": "health", "rule": "truncation", "action": "warn"}, {"kind": "checkpoint"},
    ...                      {"kind": "health", "rule": "failed_rewards", "action": "stop"}]))
    ['truncation']
    """
    spoken = [event for event in events if event.get("kind") == "health" and event.get("action") != "stop"]
    return {event["rule"] for event in spoken if "rule" in event}


def check_settings(health: HealthConfig) -> None:
    """Raises ConfigError when `health.actions` or `health.limits` names no rule, or a rule whose limit has no number.

    >>> check_settings(HealthConfig(limits={"truncaton": 0.2}))
    Traceback (most recent call last):
    ...
    toishi.errors.ConfigError: health.limits.truncaton: no such rule; did you mean 'truncation'?
    """
    for key in ("actions", "limits"):
        for name in getattr(health, key):
            if name not in BY_NAME:
                raise ConfigError(f"health.{key}.{name}: no such rule; {nearest(name, BY_NAME)}")
    for name in health.limits:
        rule = BY_NAME[name]
        if rule.limit is None:
            where = f"; its limit is {rule.limit_is}" if rule.limit_is else ""
            raise ConfigError(f"health.limits.{name}: this rule has no limit to set here{where}")
