from pathlib import Path

from toishi.health import RULES
from toishi.health.document import page

DOCUMENT = Path(__file__).parents[2] / "docs" / "health.md"


def test_the_page_is_the_table() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == page(), "write toishi.health.document.page() to docs/health.md"


def test_every_rule_says_what_to_do_and_how_soon() -> None:
    for rule in RULES:
        assert rule.remedy
        assert rule.within >= 1
        assert f"`{rule.name}` | {rule.action}" in page()
