import asyncio
import inspect
import json
import re
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

import postdate
from postdate import Client, Message

T = TypeVar("T")
Answers = Callable[[httpx.Request], httpx.Response | Awaitable[httpx.Response]]

NEVER = timedelta()

DOCUMENT = json.loads((Path(__file__).parents[3] / "api" / "openapi.json").read_text())


def play(answers: Answers | httpx.Response, use: Callable[[Client], Awaitable[T]], **options: Any) -> T:
    """Lets somebody use a client whose server answers so."""
    always = (lambda _: answers) if isinstance(answers, httpx.Response) else answers

    async def run() -> T:
        async with httpx.AsyncClient(transport=httpx.MockTransport(always)) as http:  # type: ignore[arg-type]
            return await use(Client(options.pop("server", "http://node"), http=http, **options))

    return asyncio.run(run())


def message(payload: Any = 1, **more: Any) -> Message:
    return Message(channel="inbox:a", delay=timedelta(hours=1), payload=payload, **more)


def problem(name: str, status: int) -> dict[str, Any]:
    return {"type": f"urn:postdate:problem:{name}", "title": name, "status": status, "detail": name}


SCHEDULED = {"scheduleId": "x", "bucket": 1, "executionTime": "2027-01-31T09:30:00Z", "status": "PENDING"}


def test_concurrent_schedules_share_a_request_and_each_has_its_own_result() -> None:
    requests: list[int] = []

    def answers(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/v1/messages/batch"
        items = json.loads(request.content)
        requests.append(len(items))
        results = [
            {"error": problem("exists", 409)}
            if item["payload"] == 1
            else {**SCHEDULED, "scheduleId": item["scheduleId"], "created": True}
            for item in items
        ]
        return httpx.Response(200, json={"results": results})

    async def use(client: Client) -> list[postdate.ScheduleAnswer | BaseException]:
        calls = (client.schedule(message(n)) for n in range(1200))
        return await asyncio.gather(*calls, return_exceptions=True)

    results = play(answers, use)
    assert requests == [500, 500, 200]
    refused = results.pop(1)
    assert isinstance(refused, postdate.ExistsError)
    assert not refused.may_be_done
    ids = {result.schedule_id for result in results if isinstance(result, postdate.ScheduleAnswer)}
    assert len(ids) == 1199
    form = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
    assert all(form.fullmatch(each) for each in ids)


def test_a_request_that_is_refused_for_one_item_is_halved() -> None:
    def answers(request: httpx.Request) -> httpx.Response:
        given = json.loads(request.content)
        items = given if isinstance(given, list) else [given]
        if any(item["payload"] == "large" for item in items):
            return httpx.Response(413, json=problem("too-large", 413))
        one = {**SCHEDULED, "created": True}
        return httpx.Response(200, json={"results": [one] * len(items)} if isinstance(given, list) else one)

    async def use(client: Client) -> list[Any]:
        calls = (client.schedule(message(payload)) for payload in ("a", "b", "large", "c", "d"))
        return await asyncio.gather(*calls, return_exceptions=True)

    refused = [isinstance(result, postdate.TooLargeError) for result in play(answers, use)]
    assert refused == [False, False, True, False, False]


def test_a_call_that_is_cancelled_before_it_is_sent_is_not_sent_and_later_the_request_ends() -> None:
    arrived, ended = asyncio.Event(), asyncio.Event()
    bodies: list[Any] = []

    async def answers(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        arrived.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    async def use(client: Client) -> None:
        early, late = (asyncio.create_task(client.schedule(message(n))) for n in range(2))
        await asyncio.sleep(0)
        early.cancel()
        await arrived.wait()
        late.cancel()
        await ended.wait()

    play(answers, use)
    assert [body["payload"] for body in bodies] == [1]


def test_the_next_server_is_asked_if_one_fails() -> None:
    asked: list[str] = []

    def answers(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        if request.url.host == "dead":
            raise httpx.ReadError("gone")
        return httpx.Response(200, json={"status": "ok"})

    async def use(client: Client) -> None:
        await client.call("GET", "/a")
        await client.call("GET", "/b")

    play(answers, use, server=["dead", "alive"])
    assert asked == ["dead", "alive", "alive"]


def test_a_call_whose_earlier_try_was_lost_may_be_done_unless_the_last_one_decides() -> None:
    tries: list[str] = []

    def answers(request: httpx.Request) -> httpx.Response:
        tries.append(request.url.path)
        if len(tries) == 1:
            raise httpx.ReadError("gone")
        return httpx.Response(403, json=problem("forbidden", 403))

    with pytest.raises(postdate.NoAnswerError) as lost:
        play(answers, lambda client: client.schedule(message()))
    assert lost.value.may_be_done
    tries.clear()
    with pytest.raises(postdate.NoAnswerError) as lost:
        play(answers, lambda client: client.trigger("a"))
    assert lost.value.may_be_done
    assert len(tries) == 1

    def decides(request: httpx.Request) -> httpx.Response:
        tries.append(request.url.path)
        if len(tries) == 1:
            raise httpx.ReadError("gone")
        return httpx.Response(409, json=problem("too-late", 409))

    tries.clear()
    with pytest.raises(postdate.TooLateError):
        play(decides, lambda client: client.cancel("a"))


def test_an_answer_that_makes_no_sense_is_not_asked_for_again() -> None:
    asked: list[str] = []

    def answers(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        return httpx.Response(200, text="<html>")

    with pytest.raises(postdate.NoAnswerError) as lost:
        play(answers, lambda client: client.schedule(message()))
    assert lost.value.may_be_done
    assert len(asked) == 1


@pytest.mark.parametrize("status", [302, 502])
def test_a_proxys_redirect_and_its_page_are_problems_without_a_type(status: int) -> None:
    answer = httpx.Response(status, text="<html>", headers={"Location": "/"})
    with pytest.raises(postdate.ProblemError) as met:
        play(answer, lambda client: client.trigger("a"), retry_for=NEVER)
    assert type(met.value) is postdate.ProblemError
    assert (met.value.status, met.value.may_be_done) == (status, status >= 500)


def test_a_try_waits_no_longer_than_it_may() -> None:
    async def answers(_: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(postdate.NoAnswerError, match="none within"):
        play(answers, lambda client: client.get("a"), timeout=timedelta(milliseconds=1), retry_for=NEVER)


def test_bytes_times_and_durations_have_their_forms() -> None:
    bodies: list[Any] = []

    def answers(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        return httpx.Response(200, json=SCHEDULED)

    at = datetime(2027, 1, 31, 9, 30, tzinfo=timezone.utc)
    given = Message(schedule_id="a", channel="inbox:a", execution_time=at, payload=b"\x00\x01\xff")
    play(answers, lambda client: client.schedule(given))
    play(answers, lambda client: client.patch("a", postdate.Change(delay=timedelta(minutes=15), payload=None)))
    assert bodies == [
        {
            "scheduleId": "a",
            "channel": "inbox:a",
            "executionTime": "2027-01-31T09:30:00Z",
            "payload": "AAH/",
            "payloadEncoding": "base64",
        },
        {"delay": "PT15M", "payload": None},
    ]
    assert given.payload == b"\x00\x01\xff"


def test_a_time_needs_a_zone_and_json_has_no_nan() -> None:
    with pytest.raises(ValueError, match="timezone"):
        Message(channel="inbox:a", execution_time=datetime(2027, 1, 31), payload=1)
    with pytest.raises(ValueError, match="JSON"):
        play(httpx.Response(500), lambda client: client.schedule(message(float("nan"))))


def test_words_of_a_later_version_and_forms_of_go_can_be_read() -> None:
    answer = {**SCHEDULED, "status": "POSTPONED", "later": True}
    scheduled = play(httpx.Response(200, json=answer), lambda client: client.put(message(schedule_id="a")))
    assert scheduled.status == "POSTPONED"  # type: ignore[comparison-overlap]
    retry = postdate.Retry.model_validate({"minBackoff": "1h2m3.5s", "maxBackoff": "PT5M", "maxParked": "250ms"})
    assert retry.min_backoff == timedelta(hours=1, minutes=2, seconds=3.5)
    assert retry.max_backoff == timedelta(minutes=5)
    assert retry.max_parked == timedelta(milliseconds=250)
    with pytest.raises(ValueError, match="duration"):
        postdate.Retry.model_validate({"minBackoff": "soon"})


@pytest.mark.parametrize(
    ("operation", "method", "others"),
    [
        ("listMessages", Client.messages, {"limit": "page_size", "cursor": None}),
        ("listTasks", Client.tasks, {"host": None, "limit": None, "cursor": None}),
        ("readInbox", Client.read_inbox, {"name": "inbox"}),
    ],
)
def test_a_method_has_each_parameter_of_its_operation(operation: str, method: Any, others: dict[str, Any]) -> None:
    operations = [each for methods in DOCUMENT["paths"].values() for each in methods.values()]
    [parameters] = [each["parameters"] for each in operations if each["operationId"] == operation]
    names = {others.get(each["name"], re.sub("([A-Z])", r"_\1", each["name"]).lower()) for each in parameters}
    given = {name.rstrip("_") for name in inspect.signature(method).parameters} - {"self"}
    assert given == names - {None}


def test_a_cancel_returns_only_if_the_message_is_cancelled() -> None:
    for status in ("PENDING", None):
        answer = httpx.Response(200, json={"scheduleId": "a", "status": status})
        with pytest.raises(postdate.NoAnswerError) as lost:
            play(answer, lambda client: client.cancel("a"))
        assert lost.value.may_be_done


def test_each_item_of_a_request_has_a_result_that_makes_sense() -> None:
    made_up: list[list[Any]] = [[], [{}, {}], [SCHEDULED, {"scheduleId": "b"}]]
    for results in made_up:
        answer = httpx.Response(200, json={"results": results})

        async def use(client: Client) -> list[Any]:
            return await asyncio.gather(*(client.schedule(message()) for _ in range(2)), return_exceptions=True)

        for error in play(answer, use):
            assert isinstance(error, postdate.NoAnswerError)
            assert error.may_be_done


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_an_id_that_would_be_another_path_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no name"):
        play(httpx.Response(200), lambda client: client.get(name))


@pytest.mark.parametrize("server", ["ftp://a", "http://", "http://a/v1"])
def test_an_address_that_is_none_is_refused(server: str) -> None:
    with pytest.raises(ValueError, match="not the address"):
        Client(server)


def received(name: str) -> dict[str, Any]:
    state = {"deliveries": 1, "deliveredAt": "2027-01-31T09:30:00Z", "attempt": 1}
    form = {"contentType": "application/json", "payload": name, "headers": {}}
    return {"receipt": f"r-{name}", **state, **form, "scheduleId": name, "executionTime": "2027-01-31T09:30:00Z"}


Handle = Callable[[postdate.ReceivedMessage, asyncio.Event], Awaitable[None]]


def consume(handle: Handle, acked: list[str], **options: Any) -> None:
    """Consumes the messages a, b and c, and notes which receipts are acknowledged."""

    async def answers(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        if "receipts" in body:
            acked.extend(body["receipts"])
            return httpx.Response(200, json={"results": [{"receipt": each} for each in body["receipts"]]})
        return httpx.Response(200, json={"messages": [received(name) for name in "abc"]})

    async def use(client: Client) -> None:
        stop = asyncio.Event()
        await client.consume("in", "me", lambda message: handle(message, stop), stop=stop, **options)

    play(answers, use)


def test_consume_acknowledges_what_was_handled_until_it_is_to_stop() -> None:
    async def handle(message: postdate.ReceivedMessage, stop: asyncio.Event) -> None:
        if message.payload == "a":
            fail()
        if message.payload == "b":
            stop.set()

    acked: list[str] = []
    consume(handle, acked)
    assert acked == ["r-b"]


def test_consume_acknowledges_what_was_handled_when_it_is_cancelled() -> None:
    async def handle(message: postdate.ReceivedMessage, _: asyncio.Event) -> None:
        if message.payload == "b":
            raise asyncio.CancelledError

    acked: list[str] = []
    with pytest.raises(asyncio.CancelledError):
        consume(handle, acked)
    assert acked == ["r-a"]


def test_consume_cancels_a_handler_that_has_no_time_left() -> None:
    async def handle(_: postdate.ReceivedMessage, stop: asyncio.Event) -> None:
        stop.set()
        await asyncio.Event().wait()

    acked: list[str] = []
    consume(handle, acked, visibility=timedelta(seconds=1))
    assert acked == []


def fail() -> None:
    raise RuntimeError("the test lets it fail")
