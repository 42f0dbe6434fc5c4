"""Requests that share a list know their results without a search of their own."""

from __future__ import annotations

import random
from itertools import takewhile
from typing import Any

from bylaw.model.messages import MessageList, ShownResults, SliceComparison, shared_count, shown_results


def message(rng: random.Random) -> Any:
    ids = [f"c{rng.randrange(8)}" for _ in range(rng.randrange(3))]
    blocks = [{"type": "tool_result", "tool_use_id": one} for one in ids]
    return rng.choice(
        [{"role": "user", "content": "hi"}, {"tool_call_id": f"c{rng.randrange(8)}"}, {"content": blocks}, "text", None]
    )


def test_a_slice_of_a_shared_list_has_the_same_results_as_a_copy() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        shared = MessageList()
        for _ in range(rng.randrange(1, 12)):
            shared += [message(rng) for _ in range(rng.randrange(4))]
            end = rng.randint(0, len(shared))
            start = rng.randint(0, end)
            known, copied = shown_results((shared, start, end)), shown_results((list(shared), start, end))
            assert isinstance(known, ShownResults)
            assert bool(known) == bool(copied)
            assert [f"c{n}" in known for n in range(9)] == [f"c{n}" in copied for n in range(9)]
            assert None not in known and 3 not in known


def test_slices_of_one_list_share_what_both_have() -> None:
    one = MessageList("abcdef")
    assert shared_count((one, 0, 4), (one, 0, 6)) == shared_count((one, 0, 6), (one, 0, 4)) == 4
    assert shared_count((one, 2, 4), (one, 2, 3)) == 1
    assert shared_count((one, 0, 4), (one, 1, 4)) == shared_count((one, 0, 4), (MessageList("abcdef"), 0, 4)) == 0


def test_slices_of_two_growing_lists_are_equal_as_copies_are() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        compared, one, other = SliceComparison(), MessageList(), MessageList()
        for _ in range(8):
            more = [rng.randrange(2) for _ in range(rng.randrange(4))]
            one += more
            other += more if rng.random() < 0.9 else [rng.randrange(2) for _ in more]
            for _ in range(4):
                end = rng.randint(0, len(one))
                start = rng.randint(0, min(2, end))
                slices = (one, start, end), (other, start, rng.choice([end, len(other)]))
                assert compared.are_equal(*slices) is (one[start:end] == other[start : slices[1][2]])


def test_branches_of_a_list_share_what_was_copied() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        lists = [MessageList()]
        for number in range(30):
            one = rng.choice(lists)
            if rng.random() < 0.3 and one:
                start, end = sorted((rng.randint(0, min(1, len(one))), rng.randint(0, len(one))))
                lists.append(one.branch(start, end))
            else:
                one.append(number)
        for _ in range(20):
            left, right = rng.choice(lists), rng.choice(lists)
            end, other_end = rng.randint(0, len(left)), rng.randint(0, len(right))
            pairs = zip(left[:end], right[:other_end], strict=False)
            same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            assert shared_count((left, 0, end), (right, 0, other_end)) == same


def test_a_branch_does_not_keep_the_list_alive_that_it_was_copied_from() -> None:
    one = MessageList("abc")
    left, right = one.branch(0, 2), one.branch(0, 2)
    assert shared_count((left, 0, 2), (right, 0, 2)) == 2
    del one
    assert shared_count((left, 0, 2), (right, 0, 2)) == 0
