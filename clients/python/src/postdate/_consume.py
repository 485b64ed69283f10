"""Handles what a consumer receives."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import anyio

from .models import ReceivedMessage

log = logging.getLogger("postdate")

Handler = Callable[[ReceivedMessage], Awaitable[None] | None]

_ACK_AFTER = 1.0
"""How long the acknowledgement of what was handled may wait for the rest of a batch, in seconds."""


@dataclass
class Batch:
    """The messages of one receive, and which of them are to be acknowledged."""

    handle: Handler
    ack: Callable[[Sequence[ReceivedMessage]], Awaitable[None]]
    until: float
    """When there is no more time to handle them, by time.monotonic()."""
    handled: list[ReceivedMessage] = field(default_factory=list)

    async def handle_all(self, messages: Sequence[ReceivedMessage], is_over: Callable[[], bool]) -> None:
        """Handles one message after the other, and acknowledges those that were handled, even if it is cancelled."""
        acked = time.monotonic()
        try:
            for n, message in enumerate(messages):
                if is_over():
                    break
                if time.monotonic() >= self.until:
                    log.warning("%d messages come again: there was no time to handle them", len(messages) - n)
                    break
                await self._handle(message)
                if time.monotonic() - acked > _ACK_AFTER:
                    await self._ack()
                    acked = time.monotonic()
        finally:
            with anyio.CancelScope(shield=True):
                await self._ack()

    async def _handle(self, message: ReceivedMessage) -> None:
        try:
            with anyio.fail_after(self.until - time.monotonic()):
                doing = self.handle(message)
                if inspect.isawaitable(doing):
                    await doing
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise
            over = "three quarters of its visibility were over" if time.monotonic() >= self.until else repr(error)
            again = "message %s (delivery %d) comes again: it was not handled: %s"
            log.warning(again, message.schedule_id, message.deliveries, over)
        else:
            self.handled.append(message)

    async def _ack(self) -> None:
        handled, self.handled = self.handled, []
        if handled:
            await self.ack(handled)


def _is_cancelled() -> bool:
    """Whether this task is cancelled, and not only what it waited for. Python 3.10 does not know: it may be."""
    return getattr(asyncio.current_task(), "cancelling", lambda: 1)() > 0
