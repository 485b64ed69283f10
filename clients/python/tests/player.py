"""Plays clients/scenario/scenario.json against a real node; clients/scenario/README.md says what its fields mean."""

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import httpx

from postdate import (
    Change,
    ChannelChange,
    Client,
    JobFilter,
    KeyWish,
    Message,
    NoAnswerError,
    PostdateError,
    ProblemError,
    ReceivedMessage,
    Recurrence,
    TaskDefinition,
    TenantChange,
)
from postdate._model import Model

HARNESS = os.environ["POSTDATE_HARNESS"]
saved: dict[str, str] = {}
real_time = time.time

Given = dict[str, Any]


def duration(text: str) -> timedelta:
    number, unit = re.fullmatch(r"(-?\d+)(ms|s|m|h)", text).groups()  # type: ignore[union-attr]
    return timedelta(milliseconds=int(number) * {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}[unit])


def instant(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text.replace("Z", "+00:00")) if text else None


def options_of(given: Given) -> Given:
    """Returns the options of a call that receives."""
    options = {name: duration(given[name]) for name in ("wait", "visibility") if name in given}
    return options | {name: given[name] for name in ("limit", "after") if name in given}


def snake(name: str) -> str:
    return re.sub("([A-Z])", r"_\1", name).lower()


def form_of(answer: Any) -> Any:
    """Returns an answer in the form of JSON."""
    if isinstance(answer, Model):
        return answer.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if isinstance(answer, list):
        return [form_of(each) for each in answer]
    if isinstance(answer, dict):
        return {name: form_of(each) for name, each in answer.items()}
    return answer


async def listed(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


async def control(path: str, body: object = None) -> None:
    async with httpx.AsyncClient(timeout=60) as http:
        (await http.post(HARNESS + path, json=body)).raise_for_status()


async def schedule_batch(client: Client, given: Given) -> Any:
    messages = [Message.model_validate(message) for message in given["messages"]]
    return {"results": await client.schedule_all(messages)}


async def list_messages(client: Client, given: Given) -> Any:
    options = {snake(name): value for name, value in given.items() if name not in ("from", "to")}
    return {
        "messages": await listed(
            client.messages(from_=instant(given.get("from")), to=instant(given.get("to")), **options)
        )
    }


async def job(client: Client, start: Callable[[JobFilter], Awaitable[str]], given: Given) -> Any:
    return await client.wait_job(await start(JobFilter.model_validate(given["filter"])))


async def receive(client: Client, given: Given) -> Any:
    return {"messages": await client.receive(given["inbox"], given["consumer"], **options_of(given))}


async def consume(client: Client, given: Given) -> Any:
    messages: list[ReceivedMessage] = []
    stop = asyncio.Event()

    def handle(message: ReceivedMessage) -> None:
        messages.append(message)
        if len(messages) == given["until"]:
            stop.set()
        if len(messages) == 1 and "slowFirst" in given:
            time.sleep(duration(given["slowFirst"]).total_seconds())
        if len(messages) == 1 and given.get("failFirst"):
            raise RuntimeError("the scenario lets it fail")

    await client.consume(given["inbox"], given["consumer"], handle, stop=stop, **options_of(given))
    return {"messages": messages}


async def call(client: Client, given: Given) -> Any:
    answer = await client.call(given["method"], given["path"], given.get("body"), headers=given.get("headers"))
    return {"status": answer.status}


async def set_clock(_: Client, given: Given) -> None:
    offset = duration(given["offset"])

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return cls.fromtimestamp(time.time(), tz)

    time.time = lambda: real_time() + offset.total_seconds()
    time.time_ns = lambda: int(time.time() * 1_000_000_000)
    for name, module in sys.modules.items():
        if name.startswith("postdate") and hasattr(module, "datetime"):
            vars(module)["datetime"] = Clock


async def flood(client: Client, given: Given) -> None:
    inbox, consumer, count = given["inbox"], given["consumer"], given["count"]
    failed: set[str] = set()
    handled: set[str] = set()
    unmarked: set[str] = set()
    wrong: list[str] = []
    numbers = iter(range(count))
    scheduled = 0
    stop = asyncio.Event()

    def received(message: ReceivedMessage) -> None:
        if message.schedule_id != f"flood-{message.payload}":
            wrong.append(f"{message.schedule_id} has the payload {message.payload}")
        if not message.possible_duplicate:
            if message.schedule_id in unmarked:
                wrong.append(f"{message.schedule_id} came twice without a mark")
            unmarked.add(message.schedule_id)

    def handle(message: ReceivedMessage) -> None:
        received(message)
        if message.schedule_id.endswith("00") and message.schedule_id not in failed:
            failed.add(message.schedule_id)
            raise RuntimeError("the flood lets it fail")
        handled.add(message.schedule_id)
        if len(handled) == count or wrong:
            stop.set()

    async def caller() -> None:
        nonlocal scheduled
        for n in numbers:
            channel, delay = f"inbox:{inbox}", timedelta(milliseconds=1)
            message = Message(schedule_id=f"flood-{n}", channel=channel, delay=delay, payload=n)
            answer = await client.schedule(message)
            assert answer.schedule_id == f"flood-{n}", f"it answers {answer.schedule_id} to flood-{n}"
            scheduled += 1
            if scheduled == count // 4:
                for lost in await client.receive(inbox, consumer, **options, wait=timedelta(seconds=5)):
                    received(lost)
                await control("/kill")
                await control("/start?after=200ms")

    options = options_of(given)
    workers = [client.consume(inbox, consumer, handle, stop=stop, **options) for _ in range(given["workers"])]
    await asyncio.gather(*workers, *(caller() for _ in range(given["callers"])))
    assert not wrong, wrong
    more = await client.receive(inbox, consumer, **options, wait=options["visibility"])
    assert not more, f"{more[0].schedule_id} comes again once all are handled"


CALLS: dict[str, Callable[[Client, Given], Awaitable[Any]]] = {
    "scheduleMessage": lambda client, given: client.schedule(Message.model_validate(given)),
    "scheduleBatch": schedule_batch,
    "putMessage": lambda client, given: client.put(
        Message.model_validate(given["message"]), if_version=given.get("ifVersion")
    ),
    "patchMessage": lambda client, given: client.patch(
        given["scheduleId"], Change.model_validate(given["change"]), if_version=given.get("ifVersion")
    ),
    "getMessage": lambda client, given: client.get(given["scheduleId"]),
    "listMessages": list_messages,
    "cancelMessage": lambda client, given: client.cancel(given["scheduleId"]),
    "cancelMessages": lambda client, given: named("results", client.cancel_all(given["scheduleIds"])),
    "redriveMessages": lambda client, given: named("results", client.redrive(given["scheduleIds"])),
    "purgeMessages": lambda client, given: named("results", client.purge(given["scheduleIds"])),
    "cancelWhere": lambda client, given: job(client, client.cancel_where, given),
    "redriveWhere": lambda client, given: job(client, client.redrive_where, given),
    "purgeWhere": lambda client, given: job(client, client.purge_where, given),
    "getJob": lambda client, given: client.job(given["id"]),
    "triggerMessage": lambda client, given: client.trigger(given["scheduleId"], if_version=given.get("ifVersion")),
    "pauseSeries": lambda client, given: client.pause_series(given["scheduleId"]),
    "resumeSeries": lambda client, given: client.resume_series(given["scheduleId"]),
    "previewRecurrence": lambda client, given: named(
        "occurrences",
        client.preview(
            Recurrence.model_validate(given["recurrence"]), from_=instant(given["from"]), count=given["count"]
        ),
    ),
    "getUpcoming": lambda client, given: named(
        "slots",
        client.upcoming(
            from_=instant(given["from"]),
            to=instant(given["to"]),
            step=duration(given["step"]),
            channel=given.get("channel"),
        ),
    ),
    "getFailures": lambda client, given: client.failures(
        channel=given.get("channel"), from_=instant(given.get("from")), to=instant(given.get("to"))
    ),
    "defineTask": lambda client, given: client.define_task(TaskDefinition.model_validate(given)),
    "listTasks": lambda client, given: named("tasks", listed(client.tasks(name=given["name"], unit=given["unit"]))),
    "readInbox": lambda client, given: client.read_inbox(given["inbox"], **options_of(given)),
    "receiveMessages": receive,
    "acknowledgeMessages": lambda client, given: named(
        "results", client.ack(given["inbox"], given["consumer"], given["receipts"])
    ),
    "consume": consume,
    "listChannels": lambda client, _: client.channels(),
    "changeChannel": lambda client, given: client.change_channel(ChannelChange.model_validate(given)),
    "getCluster": lambda client, _: client.cluster(),
    "getStats": lambda client, _: client.stats(),
    "whoAmI": lambda client, _: client.who_am_i(),
    "listKeys": lambda client, _: named("keys", client.keys()),
    "createKey": lambda client, given: client.create_key(KeyWish.model_validate(given)),
    "revokeKey": lambda client, given: client.revoke_key(given["id"]),
    "listTenants": lambda client, _: named("tenants", client.tenants()),
    "changeTenant": lambda client, given: client.change_tenant(
        given["tenant"], TenantChange.model_validate(given["change"])
    ),
    "getHealth": lambda client, _: client.health(),
    "getReady": lambda client, _: client.ready(),
    "getMetrics": lambda client, _: named("text", client.metrics()),
    "getOpenAPI": lambda client, _: client.openapi(),
    "call": call,
    "kill": lambda *_: control("/kill"),
    "start": lambda _, given: control(f"/start?after={given['after']}"),
    "clock": set_clock,
    "flood": flood,
}


async def named(name: str, answer: Awaitable[Any]) -> Any:
    return {name: await answer}


async def play(step: Given, http: httpx.AsyncClient) -> None:
    options: Given = {"http": http}  # to make one takes a tenth of a second
    if "fault" in step:
        await control("/fault", step["fault"])
        options["server"] = f"{HARNESS}/node"
    if "key" in step:
        options["api_key"] = fill(step["key"])
    if step.get("retry") is False:
        options["retry_for"] = timedelta()
    if "timeout" in step:
        options["timeout"] = duration(step["timeout"])
    met = None
    try:
        answer = form_of(await CALLS[step["do"]](Client(**options), fill(step.get("with", {}))))
    except PostdateError as error:
        met, answer = name_of(error)
        if met != step.get("problem"):
            raise
        if error.may_be_done is not step.get("mayBeDone", error.may_be_done):
            raise AssertionError(f"may_be_done is {error.may_be_done}") from error
    assert met == step.get("problem"), f"there is no problem, want {step['problem']}"
    if "want" in step:
        miss = mismatch(fill(step["want"]), answer)
        assert not miss, f"{miss}, in {answer}"
    for name, pointer in step.get("save", {}).items():
        saved[name] = find(answer, pointer)


def name_of(error: PostdateError) -> tuple[str, Any]:
    """Returns what the scenario calls an error, and what it is compared with."""
    if isinstance(error, ProblemError):
        form = {**form_of(error.problem), "requestId": error.request_id}
        assert "".join(error.problem.type.split(":")[-1].split("-")) + "error" == type(error).__name__.lower()
        return error.problem.type.removeprefix("urn:postdate:problem:"), form
    assert isinstance(error, NoAnswerError)
    return "no-answer", None


def fill(value: Any) -> Any:
    if isinstance(value, str):
        if times := re.fullmatch(r"\{x (\d+)\}", value):
            return "x" * int(times[1])
        return re.sub(r"\$\{(\w+)\}", lambda found: saved[found[1]], value)
    if isinstance(value, list):
        return [fill(each) for each in value]
    if isinstance(value, dict):
        return {name: fill(each) for name, each in value.items()}
    return value


def mismatch(want: Any, got: Any) -> str:
    """Says what of an answer is not as it is wanted; "": nothing."""
    if isinstance(want, dict):
        for name, each in want.items():
            if miss := mismatch(each, got.get(name) if isinstance(got, dict) else None):
                return f"/{name}{miss}"
        return ""
    if isinstance(want, list):
        rest = iter(got if isinstance(got, list) else [])
        for n, each in enumerate(want):
            if all(mismatch(each, item) for item in rest):
                return f"/{n}: there is no {each}"
        return ""
    return "" if matches(want, got) else f": is {got!r}, want {want!r}"


def matches(want: Any, got: Any) -> bool:
    if want == "{done}":
        return True
    if want == "{any}":
        return got is not None
    if want == "{none}":
        return got in (None, [])
    if isinstance(want, str) and isinstance(got, str):
        return matches_text(want, got)
    same = want == got and isinstance(want, bool) == isinstance(got, bool)
    return same or (want is False and got is None)


def matches_text(want: str, got: str) -> bool:
    if want.startswith("{has "):
        return want[5:-1] in got
    if want.startswith("{in "):
        at = instant(got)
        return at is not None and abs(at.timestamp() - real_time() - duration(want[4:-1]).total_seconds()) < 60
    if re.match(r"\d{4}-\d\d-\d\dT", want):
        return instant(want) == instant(got)
    return want == got


def find(value: Any, pointer: str) -> str:
    for name in pointer.split("/")[1:]:
        value = value[int(name) if isinstance(value, list) else name]
    assert isinstance(value, str), f"there is no text at {pointer} to save"
    return value


async def main(phases: list[Given]) -> None:
    async with httpx.AsyncClient() as http:
        for phase in phases:
            for n, step in enumerate(phase["steps"], 1):
                print(f"{phase['name']}, step {n}, {step['do']}", file=sys.stderr)
                await asyncio.wait_for(play(step, http), 120 if step["do"] == "flood" else 60)


asyncio.run(main(json.loads(Path(os.environ["POSTDATE_SCENARIO"]).read_text())["phases"]))
