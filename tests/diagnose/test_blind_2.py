"""The second blind set keeps the score that it reached, and nothing in it is wrong and sure."""

from .score_blind_2 import score, summary


def test_the_score_is_held() -> None:
    found = score()
    assert len(found) == 83
    total = summary(found)
    assert isinstance(total["share_right"], float) and total["share_right"] >= 0.85
    assert total["wrong_with_confidence_high"] == 0
    assert [s.log for s in found if s.outcome != "right"] == []


def test_no_answer_is_sure_where_only_the_usual_one_is_left() -> None:
    """Where the log says what was tried, the answer that was wrong at first is no longer given."""
    tried = [s for s in score() if s.tried]
    assert len(tried) == 9 and all(s.outcome == "right" for s in tried)
