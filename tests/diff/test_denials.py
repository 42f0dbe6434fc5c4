"""Answers that deny: other words for the same denial do not gate, a denial that comes or goes does."""

from __future__ import annotations

from typing import Any

import pytest

import bylaw
from bylaw.text.decision_words import begins_with_no, first_word, is_negated
from tests.support.build import trace

SAME = [
    ("No, that cannot be done.", "Hello! No, that cannot be done."),
    ("No, that cannot be done.", "Hi Ann, no, that cannot be done."),
    ("No, that cannot be done.", "Thanks for asking. No, that cannot be done."),
    ("No, that cannot be done.", "Thank you for your patience, Ann. No, that cannot be done."),
    ("No, that cannot be done.", "## Answer\n\nNo, that cannot be done."),
    ("No, that cannot be done.", "**Answer:** No, that cannot be done."),
    ("No, that cannot be done.", "Final answer: No, that cannot be done."),
    ("No, that cannot be done.", "Sorry, that cannot be done."),
    ("No, that cannot be done.", "I'm sorry, but that cannot be done."),
    ("No, that cannot be done.", "Sorry that it cannot be done."),
    ("No, that cannot be done.", "Unfortunately, that cannot be done."),
    ("No, that cannot be done.", "I have checked your booking. Unfortunately, that cannot be done."),
    ("No, that cannot be done.", "That cannot be done."),
    ("No, refunds are not available for this fare.", "I'm afraid refunds are not available for this fare."),
    ("No, your booking cannot be cancelled.", "Your booking, which you made in May, cannot be cancelled."),
    ("Nein, das geht nicht.", "Guten Tag! Nein, das geht nicht."),
    ("Non, ce n'est pas possible.", "Bonjour ! Désolé, ce n'est pas possible."),
    ("Yes, it is done.", "Hello! It is done."),
    ("It is deleted.", "It is deleted. If you did not ask for this, write to us."),
    ("It is deleted.", "It is deleted. If you didn't request this change, let me know."),
    ("It is deleted.", "It is deleted. If you can't find the mail, check the spam folder."),
    ("It is deleted.", "It is deleted. If you haven't received the mail in an hour, write to us."),
    ("It is deleted.", "It is deleted. If this wasn't you, write to us."),
    ("Es ist gelöscht.", "Es ist gelöscht. Falls Sie das nicht angefordert haben, schreiben Sie uns."),
    ("The account is deleted.", "The account no longer exists."),
]
CHANGED = [
    ("Yes, that can be done.", "No, that can be done by phone only."),
    ("Hello! Yes, we have it.", "Hello! No, we have it elsewhere."),
    ("## Answer\n\nYes.", "## Answer\n\nNo."),
    ("That can be done, but breakfast is not included.", "No, that is not possible, and breakfast is not included."),
    ("It is done. No fee was charged for it, and nothing is due.", "No. Nothing was done."),
    ("That can be done.", "That cannot be done."),
    ("The claim is approved.", "The claim is denied."),
    ("It is in stock.", "Sorry, it is not in stock."),
    ("It is in stock.", "Thanks for asking. It isn't in stock."),
    ("You may enter if you are a member.", "You may enter if you are not a member."),
    ("If you have paid, you get a refund.", "If you have not paid, you get a refund."),
    ("The account exists.", "The account no longer exists."),
    ("The fare is available.", "The fare is no longer available."),
]
TASKS = 12


def gates(before: str, after: str) -> bool:
    def side(name: str, answer: str) -> Any:
        asks = [{"messages": [{"role": "user", "content": f"Look after ticket T{i} please"}]} for i in range(TASKS)]
        return trace([{"session": f"t{i}", "request": asks[i], "text": answer} for i in range(TASKS)], name=name)

    return bylaw.diff(side("b", before), side("c", after)).exit_code == 1


@pytest.mark.parametrize(("before", "after"), SAME)
def test_the_same_decision_in_other_words_does_not_gate(before: str, after: str) -> None:
    assert (gates(before, after), gates(after, before)) == (False, False)


@pytest.mark.parametrize(("before", "after"), CHANGED)
def test_a_denial_that_comes_or_goes_gates(before: str, after: str) -> None:
    assert (gates(before, after), gates(after, before)) == (True, True)


@pytest.mark.parametrize(
    ("text", "word", "begins"),
    [
        ("No, it is full.", "no", True),
        ("Hello Ann! Yes, it is.", "yes", False),
        ("It is full, but there is no queue.", None, False),
        ("It is not full.", None, None),
        ("No problem, it is done.", None, False),
        ("Thanks, no problem.", None, False),
        ("Done. No fee is due.", None, False),
        ("", None, None),
    ],
)
def test_how_an_answer_begins(text: str, word: str | None, begins: bool | None) -> None:
    assert (first_word(text), begins_with_no(text)) == (word, begins)


@pytest.mark.parametrize("unit", ["hello ", "sorry, ", "# a\n", "if you ", "thanks ", "i have checked ", "no longer "])
def test_how_a_long_answer_begins_is_found_at_once(unit: str) -> None:
    """What follows the beginning is not read, so that a hostile text costs no more."""
    text = unit * 20_000
    assert begins_with_no(text) == begins_with_no(text[:1_000])
    assert is_negated(text) in (True, False)
