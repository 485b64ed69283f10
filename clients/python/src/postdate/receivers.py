"""For programs that receive messages from webhooks, RabbitMQ and Kafka."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import inspect
import re
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Protocol


class HasItems(Protocol):
    """A mapping, or what is like one, as the headers of http.server are."""

    def items(self) -> Iterable[tuple[str, object]]:
        """Returns names and values."""


Headers = HasItems | Iterable[tuple[str, object]]
"""Headers as the libraries have them: those of a request, properties.headers of pika, record.headers of Kafka."""

_SECRET_BYTES_MIN = 16


class HeadersError(ValueError):
    """The headers do not say what a message of Postdate says."""


@dataclass(frozen=True)
class Failed:
    """What is said of a message that could not be delivered."""

    message_id: str
    channel: str
    """Where it went; of a URL, the scheme and host."""
    reason: str
    attempts: int
    time: datetime
    possible_duplicate: bool
    """It may have arrived all the same."""


@dataclass(frozen=True)
class Delivery:
    """What the headers of a message say."""

    message_id: str
    """The same for each attempt: drop repetitions by it, but not of a signed webhook, where it is not signed.

    Of a series it names the occurrence too.
    """
    schedule_id: str
    """The same for all occurrences of a series."""
    execution_time: datetime
    attempt: int
    """From 1."""
    possible_duplicate: bool
    """The receiver may have the message already."""
    traceparent: str | None
    tracestate: str | None
    failed: Failed | None
    """Only on a failure channel: the message that could not be delivered."""


def read_headers(headers: Headers, message_id: str | None = None) -> Delivery:
    """Reads the headers of a message.

    On RabbitMQ the message id is a property: give it as message_id (properties.message_id).
    """
    given = _texts(headers)
    return Delivery(
        message_id=message_id or given.get("message-id") or _required(given, "ce-id"),
        schedule_id=_required(given, "postdate-schedule-id"),
        execution_time=_time(given, "postdate-execution-time"),
        attempt=_number(given, "postdate-attempt", 1),
        possible_duplicate=_flag(given, "postdate-possible-duplicate"),
        traceparent=given.get("traceparent"),
        tracestate=given.get("tracestate"),
        failed=read_failed(given),
    )


def read_failed(headers: Headers) -> Failed | None:
    """Reads what headers say of a message that could not be delivered. None: nothing.

    It is for an inbox that is a failure channel: give it the headers of what comes out of that.
    """
    given = _texts(headers)
    if "postdate-failed-id" not in given:
        return None
    return Failed(
        message_id=_required(given, "postdate-failed-id"),
        channel=_required(given, "postdate-failed-channel"),
        reason=_required(given, "postdate-failed-reason"),
        attempts=_number(given, "postdate-failed-attempts", 0),
        time=_time(given, "postdate-failed-time"),
        possible_duplicate=_flag(given, "postdate-failed-possible-duplicate"),
    )


def _flag(headers: Mapping[str, str], name: str) -> bool:
    return headers.get(name, "").lower() == "true"  # on RabbitMQ it is True


def _time(headers: Mapping[str, str], name: str) -> datetime:
    text = _required(headers, name)
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%f%z")
    except ValueError as error:
        raise HeadersError(f"{name} is no time: {text}") from error


def _number(headers: Mapping[str, str], name: str, least: int) -> int:
    text = _required(headers, name)
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) < least:
        raise HeadersError(f"{name} is no number from {least}: {text}")
    return int(text)


def _required(headers: Mapping[str, str], name: str) -> str:
    if name not in headers:
        raise HeadersError(f"there is no header {name}: the message is not from Postdate")
    return headers[name]


def _texts(headers: Headers) -> dict[str, str]:
    """Returns headers by their names in small letters."""
    items = getattr(headers, "items", None)
    pairs: Any = items() if items else headers
    return {
        name.lower(): value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        for name, value in pairs
        if isinstance(value, (bytes, int, str))
    }


class WebhookError(ValueError):
    """A request is not what somebody who has the secret sent, or not a fresh one. Answer it 401."""


def verify_webhook(
    secrets: str | Iterable[str],
    headers: Headers,
    body: bytes,
    *,
    tolerance: timedelta = timedelta(minutes=5),
    now: datetime | None = None,
) -> str:
    """Verifies a webhook's signature, as Standard Webhooks has it, and returns the webhook-id.

    Drop repetitions by that: it is the same for each attempt, and other headers that name the message are not signed.

    Args:
        secrets: Of several (whsec_…), one is enough, so that you can replace one.
        headers: Those of the request.
        body: The bytes of the request, before anything parsed them.
        tolerance: How far the sender's clock may be from this one.
        now: Default: the time.
    """
    given = _texts(headers)
    parts = [given.get("webhook-" + name, "") for name in ("id", "timestamp", "signature")]
    if not all(parts):
        raise WebhookError("the request is not signed")
    name, at, signatures = parts
    now = now or datetime.now(timezone.utc)
    if not (at.isascii() and at.isdecimal()) or abs(int(at[:15]) - now.timestamp()) > tolerance.total_seconds():
        raise WebhookError("the request is too old, or a clock is wrong: compare this machine's with the node's")
    signed = f"{name}.{at}.".encode(errors="surrogatepass") + body
    for secret in [secrets] if isinstance(secrets, str) else secrets:
        mac = b"v1," + base64.b64encode(hmac.digest(_key_of(secret), signed, hashlib.sha256))
        if any([hmac.compare_digest(mac, each.encode(errors="surrogatepass")) for each in signatures.split(" ")]):
            return name
    raise WebhookError("no signature is by a secret that is known here")


def _key_of(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        key = b""
    if not secret.startswith("whsec_") or len(key) < _SECRET_BYTES_MIN:
        raise TypeError("a secret is whsec_ and the base64 of at least 16 bytes")
    return key


class SeenStore(Protocol):
    """Remembers which messages were handled. One that processes share lets one of them know of another's."""

    def has(self, message_id: str, /) -> bool:
        """Says whether a message was handled."""

    def add(self, message_id: str, /) -> None:
        """Stores that a message was handled."""


class AsyncSeenStore(Protocol):
    """Is SeenStore for asyncio."""

    async def has(self, message_id: str, /) -> bool:
        """Says whether a message was handled."""

    async def add(self, message_id: str, /) -> None:
        """Stores that a message was handled."""


class MemoryStore:
    """A store in memory, of the last ids."""

    def __init__(self, ids_max: int = 100_000) -> None:
        """Makes a store of so many ids."""
        self._ids: dict[str, None] = {}
        self._ids_max = ids_max
        self._lock = threading.Lock()

    def has(self, message_id: str, /) -> bool:
        """Says whether a message was handled."""
        return message_id in self._ids

    def add(self, message_id: str, /) -> None:
        """Stores that a message was handled."""
        with self._lock:
            self._ids[message_id] = None
            if len(self._ids) > self._ids_max:
                del self._ids[next(iter(self._ids))]  # the oldest


class Dedupe:
    """Handles each message once, as far as its store remembers.

    An id is stored once its message is handled, so one that was not handled to the end is handled again when it comes
    again: nothing is lost, and after a crash, or in two processes at the same time, a message may be handled twice.
    """

    def __init__(self, store: SeenStore | None = None) -> None:
        """Makes one with a store. Default: in memory."""
        self._store = store or MemoryStore()
        self._in_hand: set[str] = set()
        self._changed = threading.Condition()

    def once(self, message_id: str, handle: Callable[[], object]) -> bool:
        """Handles a message unless it was handled before, and says whether it did."""
        with self._changed:
            self._changed.wait_for(lambda: message_id not in self._in_hand)  # if it fails there, it is this call's turn
            self._in_hand.add(message_id)
        try:
            if self._store.has(message_id):
                return False
            handle()
            self._store.add(message_id)
            return True
        finally:
            with self._changed:
                self._in_hand.remove(message_id)
                self._changed.notify_all()


class AsyncDedupe:
    """Is Dedupe for asyncio. The methods of its store may be async or not."""

    def __init__(self, store: SeenStore | AsyncSeenStore | None = None) -> None:
        """Makes one with a store. Default: in memory."""
        self._store = store or MemoryStore()
        self._in_hand: set[str] = set()
        self._changed = asyncio.Condition()

    async def once(self, message_id: str, handle: Callable[[], Awaitable[object]]) -> bool:
        """Handles a message unless it was handled before, and says whether it did."""
        async with self._changed:
            await self._changed.wait_for(lambda: message_id not in self._in_hand)
            self._in_hand.add(message_id)
        try:
            seen = self._store.has(message_id)
            if await seen if inspect.isawaitable(seen) else seen:
                return False
            await handle()
            added = self._store.add(message_id)
            if inspect.isawaitable(added):
                await added
            return True
        finally:
            self._in_hand.remove(message_id)
            async with self._changed:
                self._changed.notify_all()
