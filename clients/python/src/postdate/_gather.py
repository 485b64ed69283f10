"""Lets concurrent calls share requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ._http import Call
from .errors import ProblemError

R = TypeVar("R")

_ITEMS_MAX = 500
_BYTES_MAX = 16 << 20


@dataclass(eq=False)
class Item(Generic[R]):
    """One of the calls that share a request."""

    schedule_id: str
    call: Call
    """How it is sent alone."""
    answer: asyncio.Future[R] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


Alone = Callable[[Item[R]], Awaitable[R]]
"""Makes one call."""
Together = Callable[[Sequence[Item[R]]], Awaitable[Sequence[R | ProblemError]]]
"""Makes several in one request."""


class Gatherer(Generic[R]):
    """Lets concurrent calls share requests.

    At most so many senders are at work: each takes what waits, sends it as one request, and looks again. A sender
    begins once the task that runs pauses, so calls that are made together go together.
    """

    def __init__(self, alone: Alone[R], together: Together[R], senders_max: int) -> None:
        """Makes calls alone or together."""
        self._alone = alone
        self._together = together
        self._senders_max = senders_max
        self._waiting: deque[Item[R]] = deque()
        self._senders: set[asyncio.Task[None]] = set()

    async def call(self, item: Item[R]) -> R:
        """Makes a call, alone or with others."""
        self._waiting.append(item)
        if len(self._senders) < self._senders_max:
            sender = asyncio.create_task(self._send())
            self._senders.add(sender)
            sender.add_done_callback(self._senders.discard)
        return await item.answer  # if the caller is cancelled, so is this

    async def _send(self) -> None:
        while items := self._take():
            request = asyncio.create_task(self._deliver(items))
            left = len(items)

            def leave(answer: asyncio.Future[R], request: asyncio.Task[None] = request) -> None:
                nonlocal left
                left -= 1
                if left == 0 and answer.cancelled():
                    request.cancel()  # nobody waits for its answer any more

            for item in items:
                item.answer.add_done_callback(leave)
            await asyncio.wait([request])

    def _take(self) -> list[Item[R]]:
        """Takes as much of what waits as fits into a request."""
        taken: list[Item[R]] = []
        size = 0
        while self._waiting and len(taken) < _ITEMS_MAX:
            size += len(self._waiting[0].call.body or b"") + 1
            if taken and size > _BYTES_MAX:
                break
            item = self._waiting.popleft()
            if not item.answer.done():
                taken.append(item)
        return taken

    async def _deliver(self, items: Sequence[Item[R]]) -> None:
        """Makes one request and gives each caller its answer. Of one that is refused it sends the halves."""
        sent = [(items, await self._request(items))]
        while sent:
            whole, problem = sent.pop()
            if problem is None:
                continue
            middle = len(whole) // 2
            # Because of one item, or of their number: halving keeps it from the others.
            halves = [(half, await self._request(half)) for half in (whole[:middle], whole[middle:])]
            if all(_concerns_all(problem, other) for _, other in halves):
                _settle(whole, [problem] * len(whole))
            else:
                sent += halves

    async def _request(self, items: Sequence[Item[R]]) -> ProblemError | None:
        """Makes one request, and returns with what it was refused if halves of it may not be."""
        try:
            _settle(items, [await self._alone(items[0])] if len(items) == 1 else await self._together(items))
        except Exception as error:
            if isinstance(error, ProblemError) and error.status in (400, 413) and len(items) > 1:
                return error
            _settle(items, [error] * len(items))
        return None


def _concerns_all(problem: ProblemError, half: ProblemError | None) -> bool:
    """Whether a half is refused as the whole was. Of a size (413) a smaller half may do."""
    if half is None or problem.status != 400:  # noqa: PLR2004
        return False
    return (problem.problem.type, str(problem)) == (half.problem.type, str(half))


def _settle(items: Sequence[Item[R]], results: Sequence[R | Exception]) -> None:
    """Gives each caller its answer."""
    for item, result in zip(items, results, strict=True):
        if item.answer.done():
            continue
        if isinstance(result, Exception):
            item.answer.set_exception(result)
        else:
            item.answer.set_result(result)
