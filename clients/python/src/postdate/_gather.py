"""Lets concurrent calls share requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from .errors import ProblemError

R = TypeVar("R")

_ITEMS_MAX = 500
# A batch has at most 64 MiB, and a character at most four bytes.
_CHARACTERS_MAX = 16 << 20


@dataclass(eq=False)
class Item(Generic[R]):
    """One of the calls that share a request."""

    schedule_id: str
    body: str
    """Its JSON in the request."""
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

    async def call(self, schedule_id: str, body: str) -> R:
        """Makes a call, alone or with others."""
        item = Item[R](schedule_id, body)
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
        characters = 0
        while self._waiting and len(taken) < _ITEMS_MAX:
            characters += len(self._waiting[0].body) + 1
            if taken and characters > _CHARACTERS_MAX:
                break
            item = self._waiting.popleft()
            if not item.answer.done():
                taken.append(item)
        return taken

    async def _deliver(self, items: Sequence[Item[R]]) -> None:
        """Makes one request and gives each caller its answer."""
        results: Sequence[R | Exception]
        try:
            results = [await self._alone(items[0])] if len(items) == 1 else await self._together(items)
        except Exception as error:
            refused = isinstance(error, ProblemError) and error.status in (400, 413)
            if refused and len(items) > 1:
                # Because of one item, or of their number: halving keeps it from the others.
                half = len(items) // 2
                await self._deliver(items[:half])
                await self._deliver(items[half:])
                return
            results = [error] * len(items)
        for item, result in zip(items, results, strict=True):
            if item.answer.done():
                continue
            if isinstance(result, Exception):
                item.answer.set_exception(result)
            else:
                item.answer.set_result(result)
