"""Models that judge: what is asked, who answers, how a reply is read."""

from toishi.judging.base import Judge, JudgeCall, JudgeFailure, JudgeRefused, JudgeReply, ScriptedJudge, Usage

__all__ = ["Judge", "JudgeCall", "JudgeFailure", "JudgeRefused", "JudgeReply", "ScriptedJudge", "Usage"]
