"""Work in several processes comes back in order, and a process that is ended is told."""

import os
import time

import pytest

from latentry.errors import LatentryError
from latentry.sampling.processes import AHEAD, in_order


def slow_first(item: int) -> int:
    time.sleep(0.2 if item == 0 else 0)
    return item * item


@pytest.mark.parametrize("processes", [1, 3])
def test_results_come_in_the_order_of_the_items_whatever_ends_first(processes: int) -> None:
    assert list(in_order(slow_first, range(20), processes)) == [item * item for item in range(20)]


def test_no_more_is_begun_than_the_reader_may_be_behind() -> None:
    begun = []

    def items():
        for item in range(100):
            begun.append(item)
            yield item

    results = in_order(slow_first, items(), 2)
    assert next(results) == 0
    assert len(begun) <= AHEAD * 2
    results.close()


def test_a_process_that_is_ended_is_told_with_what_to_lower() -> None:
    with pytest.raises(LatentryError, match=r"one of 2 processes ended before its work.*lower `run\.processes`"):
        list(in_order(os._exit, range(4), 2))
