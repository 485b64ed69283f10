import asyncio
import inspect
import json
import re
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

import postdate
from postdate import Client, Message
from postdate._model import wire

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


SCHEDULED = {"scheduleId": "a", "bucket": 1, "executionTime": "2027-01-31T09:30:00Z", "status": "PENDING"}


def scheduled(item: dict[str, Any]) -> dict[str, Any]:
    return {**SCHEDULED, "scheduleId": item["scheduleId"]}


def schedules(request: httpx.Request) -> httpx.Response:
    """Answers that all is scheduled."""
    given = json.loads(request.content)
    if isinstance(given, dict):
        return httpx.Response(201, json=scheduled(given))
    return httpx.Response(200, json={"results": [{**scheduled(item), "created": True} for item in given]})


def test_concurrent_schedules_share_a_request_and_each_has_its_own_result() -> None:
    requests: list[int] = []

    def answers(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/v1/messages/batch"
        items = json.loads(request.content)
        requests.append(len(items))
        exists = {"error": problem("exists", 409)}
        results = [exists if item["payload"] == 1 else {**scheduled(item), "created": True} for item in items]
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
        return schedules(request)

    async def use(client: Client) -> list[Any]:
        calls = (client.schedule(message(payload)) for payload in ("a", "b", "large", "c", "d"))
        return await asyncio.gather(*calls, return_exceptions=True)

    refused = [isinstance(result, postdate.TooLargeError) for result in play(answers, use)]
    assert refused == [False, False, True, False, False]


def test_a_request_that_is_refused_for_all_is_not_halved_to_the_end() -> None:
    asked: list[str] = []

    def answers(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        return httpx.Response(400, json=problem("invalid-parameter", 400))

    async def use(client: Client) -> list[Any]:
        return await asyncio.gather(*(client.schedule(message()) for _ in range(500)), return_exceptions=True)

    assert all(isinstance(result, postdate.InvalidParameterError) for result in play(answers, use))
    assert len(asked) == 3


def test_requests_are_halved_as_long_as_they_are_too_large() -> None:
    def answers(request: httpx.Request) -> httpx.Response:
        large = isinstance(json.loads(request.content), list)
        return httpx.Response(413, json=problem("too-large", 413)) if large else schedules(request)

    async def use(client: Client) -> list[postdate.ScheduleAnswer]:
        return await asyncio.gather(*(client.schedule(message()) for _ in range(8)))

    assert len({answer.schedule_id for answer in play(answers, use)}) == 8


BAD = "bad\ud800"


def test_a_text_that_cannot_be_sent_fails_alone() -> None:
    def answers(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/messages/cancel":
            ids = json.loads(request.content)["scheduleIds"]
            results = [{"scheduleId": each, "status": "CANCELLED"} for each in ids]
            return httpx.Response(200, json={"results": results})
        return schedules(request)

    async def use(client: Client) -> list[Any]:
        calls = [client.schedule(message(payload)) for payload in ("a", BAD, float("nan"), {"b": object()}, "c")]
        calls += [client.cancel(each) for each in ("a", BAD, "", "c")]  # type: ignore[misc]
        return await asyncio.gather(*calls, return_exceptions=True)

    refused = [isinstance(result, postdate.UsageError) for result in play(answers, use)]
    assert refused == [False, True, True, True, False, False, True, True, False]


@pytest.mark.parametrize("value", ["k\n", "k ", "k\r\nA: 1", "k\u2026", "k\x00"])
def test_what_cannot_be_a_header_is_refused_at_once_and_not_quoted(value: str) -> None:
    options: list[dict[str, Any]] = [{"api_key": f"secret{value}"}, {"tenant": value}, {"headers": {"A": value}}]
    for given in options:
        with pytest.raises(postdate.UsageError) as refused:
            Client("http://node", **given)
        assert "secret" not in str(refused.value)
        assert not refused.value.may_be_done
    with pytest.raises(postdate.UsageError):
        play(schedules, lambda client: client.schedule(message(), traceparent=value))
    with pytest.raises(postdate.UsageError):
        play(schedules, lambda client: client.call("GET", "/a", headers={"A": value}))


def test_the_key_is_not_in_what_a_call_prints() -> None:
    async def use(client: Client) -> str:
        return repr(client._call("GET", "/a"))

    assert "secret" not in play(schedules, use, api_key="secret")


def test_no_requests_at_all_are_refused() -> None:
    with pytest.raises(postdate.UsageError, match="requests"):
        Client("http://node", requests=0)


def test_a_client_is_for_one_event_loop() -> None:
    client = Client("http://node", http=httpx.AsyncClient(transport=httpx.MockTransport(schedules)))
    asyncio.run(client.schedule(message()))
    calls: list[Callable[[], Any]] = [lambda: client.schedule(message()), lambda: client.cancel("a"), client.health]
    for call in calls:
        with pytest.raises(postdate.UsageError, match="one event loop"):
            asyncio.run(call())


def test_a_closed_client_says_so() -> None:
    async def use(client: Client) -> None:
        await client._http.aclose()
        with pytest.raises(postdate.UsageError, match="closed"):
            await client.get("a")
        with pytest.raises(postdate.UsageError, match="closed"):
            await client.schedule(message())

    play(schedules, use)


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


def test_a_request_ends_once_all_its_callers_left_and_not_before() -> None:
    arrived, answer, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def answers(request: httpx.Request) -> httpx.Response:
        arrived.set()
        try:
            await answer.wait()
        finally:
            ended.set()
        return schedules(request)

    async def begin(client: Client) -> list[asyncio.Task[Any]]:
        tasks = [asyncio.create_task(client.schedule(message())) for _ in range(3)]
        await arrived.wait()
        arrived.clear()
        return tasks

    async def use(client: Client) -> None:
        first, second, third = await begin(client)
        first.cancel()
        second.cancel()
        await asyncio.wait([first, second])
        answer.set()
        await third
        answer.clear()
        ended.clear()
        for task in await begin(client):
            task.cancel()
        await ended.wait()
        assert not answer.is_set()

    play(answers, use)


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
    others: list[Callable[[Client], Awaitable[Any]]] = [
        lambda client: client.trigger("a"),
        lambda client: client.purge(["a"]),
        lambda client: client.cancel_where(postdate.JobFilter(label="a")),
    ]
    for call in others:
        tries.clear()
        with pytest.raises(postdate.NoAnswerError) as lost:
            play(answers, call)
        assert lost.value.may_be_done
        assert len(tries) == 1

    def later(request: httpx.Request) -> httpx.Response:
        if len(tries) == 1:
            tries.append(request.url.path)
            return httpx.Response(503, json=problem("not-ready", 503))
        return answers(request)

    tries.clear()
    with pytest.raises(postdate.NoAnswerError) as lost:
        play(later, lambda client: client.schedule(message()))
    assert lost.value.may_be_done
    assert len(tries) == 3

    def decides(request: httpx.Request) -> httpx.Response:
        tries.append(request.url.path)
        if len(tries) == 1:
            raise httpx.ReadError("gone")
        return httpx.Response(409, json=problem("too-late", 409))

    tries.clear()
    with pytest.raises(postdate.TooLateError):
        play(decides, lambda client: client.cancel("a"))


def test_the_error_of_a_schedule_has_the_id_to_repeat_it_with() -> None:
    ids: list[str] = []

    def answers(request: httpx.Request) -> httpx.Response:
        given = json.loads(request.content)
        ids.extend(item["scheduleId"] for item in (given if isinstance(given, list) else [given]))
        if request.headers.get("traceparent"):
            return httpx.Response(409, json=problem("exists", 409), headers={"X-Request-Id": "r"})
        raise httpx.ReadError("gone")

    async def use(client: Client) -> list[Any]:
        calls = [client.schedule(message()) for _ in range(2)]
        together: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
        with pytest.raises(postdate.ExistsError) as exists:
            await client.schedule(message(), traceparent="00-1-2-01")
        return [*together, exists.value]

    errors = play(answers, use, retry_for=NEVER)
    assert [error.schedule_id for error in errors] == ids
    assert len(set(ids)) == 3
    lost, exists = errors[1], errors[2]
    assert isinstance(lost, postdate.NoAnswerError)
    assert lost.may_be_done
    assert isinstance(lost.__cause__, httpx.ReadError)
    assert "gone" in str(lost)
    assert isinstance(exists, postdate.ExistsError)
    assert (exists.status, exists.request_id, str(exists)) == (409, "r", "exists")


@pytest.mark.parametrize("after", ["9" * 400, "9" * 5000, "\u00b2", "soon", "-1"])
def test_a_time_to_wait_that_makes_no_sense_is_left(after: str) -> None:
    headers = [(b"Retry-After", after.encode())]
    answer = httpx.Response(429, json=problem("limited", 429), headers=headers)
    with pytest.raises(postdate.LimitedError) as limited:
        play(answer, lambda client: client.get("a"), retry_for=NEVER)
    assert limited.value.retry_after is None


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
        {"delay": "900000ms", "payload": None},
    ]
    assert given.payload == b"\x00\x01\xff"


def body_of(model: postdate.Message | postdate.Change) -> Any:
    return json.loads(wire(model))


def test_a_delay_is_sent_as_a_delay_whatever_the_clock_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 0.0)
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    delays = {
        timedelta(): "0ms",
        timedelta(microseconds=1): "1us",
        timedelta(milliseconds=1): "1ms",
        timedelta(days=365): "31536000000ms",
        timedelta(days=36_600, microseconds=1): "3162240000000001us",
        timedelta(seconds=-1): "-1000ms",
    }
    for delay, want in delays.items():
        given = body_of(Message(channel="inbox:a", delay=delay, payload=1))
        assert given == {"channel": "inbox:a", "delay": want, "payload": 1}
    retry = postdate.Retry(max_parked=timedelta(days=400))
    assert body_of(message(retry=retry))["retry"] == {"maxParked": "34560000000ms"}


def test_a_time_is_sent_in_utc() -> None:
    at = datetime(2037, 1, 1, tzinfo=timezone(timedelta(seconds=-3599)))
    given = body_of(Message(channel="inbox:a", execution_time=at, payload={"at": at}))
    assert given["executionTime"] == "2037-01-01T00:59:59Z"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_what_is_like_bytes_is_sent_as_bytes(kind: Callable[[bytes], Any]) -> None:
    given = body_of(message(kind(b"\x00\xff")))
    assert (given["payload"], given["payloadEncoding"]) == ("AP8=", "base64")


def test_an_id_of_no_characters_is_refused() -> None:
    with pytest.raises(postdate.UsageError, match="schedule_id"):
        play(schedules, lambda client: client.schedule(message(schedule_id="")))


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


ONE = {"scheduleId": "b", "status": "CANCELLED"}
MANY = {"results": [ONE]}
CHANGES: list[tuple[Callable[[Client], Awaitable[Any]], list[Any]]] = [
    (lambda client: client.cancel("a"), [{}, ONE, {"scheduleId": "a", "status": "PENDING"}]),
    (lambda client: client.cancel_all(["a"]), [MANY, {"results": [{"scheduleId": "a", "status": "PENDING"}]}]),
    (lambda client: client.cancel_all(["a", "a"]), [MANY, {"results": [None, None]}]),
    (lambda client: client.redrive(["a"]), [MANY, {"results": [{**ONE, "scheduleId": "a"}]}]),
    (lambda client: client.purge(["a"]), [MANY, {"results": [{**ONE, "scheduleId": "a"}]}]),
    (lambda client: client.cancel_where(postdate.JobFilter(label="a")), [{}]),
    (lambda client: client.schedule(message(schedule_id="b")), [SCHEDULED]),
    (lambda client: client.schedule_all([message(schedule_id="b")]), [{"results": [SCHEDULED]}]),
    (lambda client: client.schedule_all([message(), message()]), [{"results": []}]),
    (lambda client: client.put(message(schedule_id="b")), [SCHEDULED]),
    (lambda client: client.patch("b", postdate.Change(paused=True)), [SCHEDULED]),
    (lambda client: client.ack("in", "me", ["r"]), [{"results": [{"receipt": "r"}]}, {"results": []}]),
    (lambda client: client.ack("in", "me", ["r"]), [{"results": [{"receipt": "s", "acked": True}]}]),
]


@pytest.mark.parametrize(("call", "answers"), CHANGES)
def test_an_answer_that_is_not_what_was_asked_for_makes_no_sense(
    call: Callable[[Client], Awaitable[Any]], answers: list[Any]
) -> None:
    for answer in [*answers, {}, [], None, "x"]:
        with pytest.raises(postdate.NoAnswerError) as lost:
            play(httpx.Response(200, json=answer), call)
        assert lost.value.may_be_done
        assert lost.value.is_garbled


def test_each_item_of_a_request_has_a_result_that_makes_sense() -> None:
    made_up: list[list[Any]] = [[], [{}, {}], [SCHEDULED, {"scheduleId": "b"}]]
    for results in made_up:
        answer = httpx.Response(200, json={"results": results})

        async def use(client: Client) -> list[Any]:
            return await asyncio.gather(*(client.schedule(message()) for _ in range(2)), return_exceptions=True)

        for error in play(answer, use):
            assert isinstance(error, postdate.NoAnswerError)
            assert error.may_be_done


@pytest.mark.parametrize("name", ["", ".", "..", None])
def test_an_id_that_is_none_is_refused(name: Any) -> None:
    with pytest.raises(postdate.UsageError, match="no name"):
        play(httpx.Response(200), lambda client: client.get(name))
    with pytest.raises(postdate.UsageError, match="no name"):
        play(httpx.Response(200), lambda client: client.cancel(name))


def test_a_number_is_no_time_and_no_duration() -> None:
    number: Any = 5
    calls: list[Callable[[Client], Awaitable[Any]]] = [
        lambda client: client.move("a", number),
        lambda client: client.receive("in", "me", wait=number),
        lambda client: client.consume("in", "me", lambda _: None, visibility=number),
    ]
    for call in calls:
        with pytest.raises(postdate.UsageError, match="timedelta"):
            play(httpx.Response(200), call)
    with pytest.raises(postdate.UsageError, match="timedelta"):
        Client("http://node", timeout=number)


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
            results = [{"receipt": each, "acked": True} for each in body["receipts"]]
            return httpx.Response(200, json={"results": results})
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
            asyncio.current_task().cancel()  # type: ignore[union-attr]
            await asyncio.sleep(0)

    acked: list[str] = []
    with pytest.raises(asyncio.CancelledError):
        consume(handle, acked)
    assert acked == ["r-a"]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="it cannot be told")
def test_consume_goes_on_if_a_handler_cancels_what_it_waits_for() -> None:
    async def handle(message: postdate.ReceivedMessage, stop: asyncio.Event) -> None:
        if message.payload == "b":
            task = asyncio.create_task(asyncio.Event().wait())
            task.cancel()
            await task
        if message.payload == "c":
            stop.set()

    acked: list[str] = []
    consume(handle, acked)
    assert acked == ["r-a", "r-c"]


def test_consume_begins_no_message_after_three_quarters_of_its_visibility(monkeypatch: pytest.MonkeyPatch) -> None:
    now, passed = time.monotonic, {"a": 700, "b": 751, "c": 0}
    handled: list[Any] = []

    async def handle(message: postdate.ReceivedMessage, stop: asyncio.Event) -> None:
        handled.append(message.payload)
        at = now() + passed[handled[-1]]
        monkeypatch.setattr(time, "monotonic", lambda: at)
        if message.payload == "b":
            asyncio.get_running_loop().call_soon(stop.set)

    acked: list[str] = []
    consume(handle, acked, visibility=timedelta(seconds=1000))
    assert handled == ["a", "b"]
    assert acked == ["r-a", "r-b"]


def test_consume_goes_on_if_a_node_is_down_for_long_and_ends_if_it_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("postdate._client._PAUSE_LONGEST", 0)
    down = httpx.Response(500, json=problem("internal", 500))
    refused = httpx.Response(403, json=problem("forbidden", 403))
    none = httpx.Response(200, json={"messages": []})
    some = httpx.Response(200, json={"messages": [received("a")]})
    script = iter([("receive", down), ("receive", none), ("receive", some), ("ack", down), ("receive", refused)])

    def answers(request: httpx.Request) -> httpx.Response:
        path, answer = next(script)
        assert request.url.path.endswith(path)
        return answer

    with pytest.raises(postdate.ForbiddenError):
        play(answers, lambda client: client.consume("in", "me", lambda _: None), retry_for=NEVER)
    assert next(script, None) is None


def test_a_stop_ends_a_receive_that_waits() -> None:
    async def use(client: Client) -> None:
        await client.consume("in", "me", lambda _: None, stop=stop)

    async def answers(_: httpx.Request) -> httpx.Response:
        stop.set()
        await asyncio.Event().wait()
        raise AssertionError

    stop = asyncio.Event()
    play(answers, use)


def test_consume_cancels_a_handler_that_has_no_time_left() -> None:
    async def handle(_: postdate.ReceivedMessage, stop: asyncio.Event) -> None:
        stop.set()
        await asyncio.Event().wait()

    acked: list[str] = []
    consume(handle, acked, visibility=timedelta(seconds=1))
    assert acked == []


def fail() -> None:
    raise RuntimeError("the test lets it fail")
