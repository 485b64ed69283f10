import asyncio
import json
import threading
from collections.abc import Callable
from datetime import datetime
from email.message import Message as Headerlike
from pathlib import Path
from typing import Any

import pytest

from postdate.receivers import (
    AsyncDedupe,
    Dedupe,
    Delivery,
    Failed,
    Headers,
    HeadersError,
    MemoryStore,
    WebhookError,
    read_failed,
    read_headers,
    verify_webhook,
)

VECTORS = json.loads((Path(__file__).parents[2] / "scenario" / "receivers.json").read_text())


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def failed_of(want: dict[str, Any]) -> Failed:
    return Failed(
        message_id=want["messageId"],
        channel=want["channel"],
        reason=want["reason"],
        attempts=want["attempts"],
        time=instant(want["time"]),
        possible_duplicate=want["possibleDuplicate"],
    )


def forms(headers: dict[str, Any]) -> list[Headers]:
    """Returns headers as the libraries have them."""
    like = Headerlike()
    for name, value in headers.items():
        like[name] = str(value)
    return [headers, list(headers.items()), [(name, str(value).encode()) for name, value in headers.items()], like]


@pytest.mark.parametrize("vector", VECTORS["webhooks"], ids=lambda vector: vector["name"])
def test_webhooks(vector: dict[str, Any]) -> None:
    body, now = vector["body"].encode(), instant(vector["now"])
    for headers in forms(vector["headers"]):
        if vector["valid"]:
            assert verify_webhook(vector["secrets"], headers, body, now=now) == "order-1"
        else:
            with pytest.raises(WebhookError):
                verify_webhook(vector["secrets"], headers, body, now=now)


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
@pytest.mark.parametrize("bad", ["\udcff", "\ud800"])
def test_a_text_that_is_none_is_no_signature(name: str, bad: str) -> None:
    vector = VECTORS["webhooks"][0]
    headers = {**vector["headers"], name: vector["headers"][name] + bad}
    with pytest.raises(WebhookError):
        verify_webhook(vector["secrets"], headers, vector["body"].encode(), now=instant(vector["now"]))


@pytest.mark.parametrize(
    "secret", ["hunter2", "whsec_", "whsec_hunter2", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="]
)
def test_a_secret_that_is_none_is_the_receivers_fault(secret: str) -> None:
    vector = VECTORS["webhooks"][0]
    now = instant(vector["now"])
    with pytest.raises(TypeError):
        verify_webhook(secret, vector["headers"], b"", now=now)


@pytest.mark.parametrize("vector", VECTORS["headers"], ids=lambda vector: vector["name"])
def test_headers(vector: dict[str, Any]) -> None:
    message_id, want = vector.get("messageId"), vector["want"]
    for headers in forms(vector["headers"]):
        if want is None:
            with pytest.raises(HeadersError):
                read_headers(headers, message_id)
        else:
            assert read_headers(headers, message_id) == Delivery(
                message_id=want["messageId"],
                schedule_id=want["scheduleId"],
                execution_time=instant(want["executionTime"]),
                attempt=want["attempt"],
                possible_duplicate=want["possibleDuplicate"],
                traceparent=want.get("traceparent"),
                tracestate=want.get("tracestate"),
                failed=failed_of(want["failed"]) if "failed" in want else None,
            )


@pytest.mark.parametrize("mark", [True, "true", b"true"])
def test_the_mark_of_a_possible_duplicate_is_a_boolean_or_a_text(mark: object) -> None:
    headers = {**VECTORS["headers"][3]["headers"], "postdate-possible-duplicate": mark}
    headers["postdate-failed-possible-duplicate"] = mark
    delivery = read_headers(headers)
    assert delivery.possible_duplicate
    assert delivery.failed
    assert delivery.failed.possible_duplicate


def test_the_headers_of_an_inbox_that_is_a_failure_channel_can_be_read() -> None:
    headers = VECTORS["headers"][3]["headers"]
    of_inbox = {name: value for name, value in headers.items() if name.startswith("postdate-failed-")}
    assert read_failed(of_inbox) == failed_of(VECTORS["headers"][3]["want"]["failed"])
    assert read_failed({}) is None


def fail() -> None:
    raise RuntimeError("the test lets it fail")


def test_a_message_is_handled_once_and_again_if_it_was_not_handled_to_the_end() -> None:
    dedupe, handled = Dedupe(), list[str]()
    with pytest.raises(RuntimeError):
        dedupe.once("a", fail)
    assert [dedupe.once("a", lambda: handled.append("a")) for _ in range(2)] == [True, False]
    assert handled == ["a"]


def test_copies_that_come_at_the_same_time_are_handled_one_after_the_other() -> None:
    dedupe, begun, go_on = Dedupe(), threading.Event(), threading.Event()
    answers: dict[str, object] = {}

    def slow() -> None:
        begun.set()
        go_on.wait(60)
        fail()

    def call(name: str, handle: Callable[[], object]) -> None:
        try:
            answers[name] = dedupe.once("a", handle)
        except RuntimeError:
            answers[name] = "failed"

    first = threading.Thread(target=call, args=("first", slow))
    first.start()
    assert begun.wait(60)
    others = [threading.Thread(target=call, args=(str(n), lambda: None)) for n in range(2)]
    for other in others:
        other.start()
    assert answers == {}
    go_on.set()
    for thread in [first, *others]:
        thread.join()
    assert answers.pop("first") == "failed"
    assert sorted(answers.values(), key=str) == [False, True]


def test_async_copies_are_handled_one_after_the_other() -> None:
    class Store:
        def __init__(self) -> None:
            self.memory = MemoryStore()

        async def has(self, message_id: str, /) -> bool:
            await asyncio.sleep(0)
            return self.memory.has(message_id)

        async def add(self, message_id: str, /) -> None:
            await asyncio.sleep(0)
            self.memory.add(message_id)

    order: list[str] = []

    async def slow() -> None:
        order.append("begun")
        await asyncio.sleep(0)
        order.append("ended")
        if len(order) == 2:
            fail()

    async def play(dedupe: AsyncDedupe) -> list[Any]:
        return await asyncio.gather(*(dedupe.once("a", slow) for _ in range(3)), return_exceptions=True)

    for store in (None, Store()):
        order.clear()
        failed, *others = asyncio.run(play(AsyncDedupe(store)))
        assert order == ["begun", "ended", "begun", "ended"]
        assert isinstance(failed, RuntimeError)
        assert others == [True, False]


def test_a_store_in_memory_forgets_the_oldest() -> None:
    store = MemoryStore(2)
    for name in "abc":
        store.add(name)
    assert [store.has(name) for name in "abc"] == [False, True, True]
