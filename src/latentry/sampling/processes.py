"""Blocks of latents in several processes, their results in order. What the processes share is made before and not copied.

They are forks of this one: the corpus and the store are in memory once. Where a system has no forks, or one process is
asked for, the work is done here.
"""

import multiprocessing
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from latentry.errors import LatentryError

T = TypeVar("T")
R = TypeVar("R")

AHEAD = 2
"""Blocks that each process may be ahead of the reader, so that finished ones do not pile up in memory."""

_function: Callable[[Any], Any] | None = None


def in_order(function: Callable[[T], R], items: Iterable[T], processes: int) -> Generator[R, None, None]:
    """`function` of every item, in their order; an exception in a process is raised here.

    Raises:
        LatentryError: a process was ended from outside.
    """
    if processes == 1 or "fork" not in multiprocessing.get_all_start_methods():
        yield from map(function, items)
        return
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("fork"), initializer=_take_on, initargs=(function,))
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(_work, item))
            if len(waiting) == AHEAD * processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise LatentryError(
            f"examples: one of {processes} processes ended before its work, mostly for want of memory; lower `run.processes` and run again"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _take_on(function: Callable[[Any], Any]) -> None:
    global _function
    _function = function


def _work(item: Any) -> Any:
    if _function is None:
        raise RuntimeError("a process of sampling was given work before its function")
    return _function(item)
