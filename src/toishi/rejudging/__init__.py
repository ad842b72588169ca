"""Judges asked again: about the answers of a recorded step (`step`), or about answers with labels (`audited`)."""

from toishi.rejudging.audited import AuditPlan, audit_judge
from toishi.rejudging.items import AuditAnswers, answers_of_file, answers_of_run
from toishi.rejudging.step import AnswerAgain, Rejudged, rejudge

__all__ = [
    "AnswerAgain",
    "AuditAnswers",
    "AuditPlan",
    "Rejudged",
    "answers_of_file",
    "answers_of_run",
    "audit_judge",
    "rejudge",
]
