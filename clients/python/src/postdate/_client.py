"""The client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TypeVar

import httpx
from pydantic import ValidationError

from . import models
from ._consume import Batch, Handler, log
from ._forms import check_durations, condition, named, path_of, query_of
from ._gather import Gatherer, Item
from ._http import Answer, error_of
from ._model import Model, duration, instant, wire
from ._operations import Operations
from .errors import NoAnswerError, PostdateError, ProblemError, UsageError, garbled

T = TypeVar("T")

_NO_TIME = timedelta()
_PAGE = 1000

# How long wait_job waits before it looks again, in seconds.
_PAUSE_LEAST = 0.05
_PAUSE_LONGEST = 1.0


class ScheduleAnswer(models.Scheduled):
    """The answer of a call that schedules a message."""

    created: bool
    """False: an equal request had scheduled it already."""


class Client(Operations):
    """A client of a Postdate node or cluster.

    A call that fails raises a ProblemError, a NoAnswerError or a UsageError. Reads, schedules, cancels, receives and
    acknowledgements are tried again until they are answered or `retry_for` is over; other calls only where surely
    nothing was done. Concurrent calls of schedule share requests, and so do those of cancel. To end a call sooner,
    cancel its task, as asyncio.timeout does. A client is for one event loop.
    """

    def __init__(
        self,
        server: str | Sequence[str] | None = None,
        *,
        api_key: str | None = None,
        tenant: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: timedelta = timedelta(seconds=40),
        retry_for: timedelta = timedelta(minutes=1),
        requests: int = 2,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        """Makes a client. It does not connect yet.

        Args:
            server: The addresses of one node, or of several nodes of one cluster. Default: POSTDATE_SERVER, else
                http://127.0.0.1:8080.
            api_key: Default: POSTDATE_API_KEY.
            tenant: The tenant for which an administrator's key acts. Default: POSTDATE_AS_TENANT, else the key's own.
            headers: They are sent with every request.
            timeout: How long one try waits for its answer, beside a long poll's wait. The default is longer than a
                node takes.
            retry_for: How long after its first try a call may be tried again. Zero: no call is tried again.
            requests: How many requests for gathered schedules are in progress at most, and likewise for cancels.
            http: Makes the requests, with its own settings of TLS and proxies. Its owner closes it.
        """
        if requests < 1:
            raise UsageError("requests must be at least 1: with none, nothing is sent")
        super().__init__(server, api_key, tenant, headers, timeout, retry_for, http)
        self._schedules = Gatherer(self._schedule_alone, self._schedule_together, requests)
        self._cancels = Gatherer(self._cancel_alone, self._cancel_together, requests)

    # Messages

    async def schedule(
        self, message: models.Message, *, traceparent: str | None = None, tracestate: str | None = None
    ) -> ScheduleAnswer:
        """Schedules a message. One without a schedule_id gets one before the first try.

        The same schedule_id with the same content again is answered as the first time, with other content by an
        ExistsError. A call with a traceparent, the W3C trace context that goes with the message, shares no request;
        a tracestate counts only with that.
        """
        schedule_id, body = named(message)
        trace = {} if traceparent is None else {"traceparent": traceparent}
        if trace and tracestate is not None:
            trace["tracestate"] = tracestate
        call = self._call("POST", "/v1/messages", body, trace or None)
        send = self._schedules.call if traceparent is None else self._schedule_alone
        try:
            return await self._transport.retry(True, lambda: send(Item(schedule_id, call)))
        except PostdateError as error:
            raise error.of(schedule_id) from error.__cause__

    async def _schedule_alone(self, item: Item[ScheduleAnswer]) -> ScheduleAnswer:
        answer = await self._transport.once(item.call)
        scheduled = answer.read(models.Scheduled)
        _check(answer, [item.schedule_id], [scheduled], "schedule_id")
        return ScheduleAnswer(**scheduled.model_dump(exclude_unset=True), created=answer.status == httpx.codes.CREATED)

    async def schedule_all(self, messages: Sequence[models.Message]) -> list[models.BatchResult]:
        """Schedules up to 10,000 messages in one request. Each stands or falls alone, and its result says which.

        Give each a schedule_id, so that you can repeat a call that fails.
        """
        items = [named(message) for message in messages]
        body = b"[" + b",".join(body for _, body in items) + b"]"
        call = self._call("POST", "/v1/messages/batch", body, repeatable=True)
        answer = await self._transport.do(call)
        results = answer.read(models.BatchResults).results
        _check(answer, [schedule_id for schedule_id, _ in items], results, "schedule_id")
        return results

    async def _schedule_together(
        self, items: Sequence[Item[ScheduleAnswer]]
    ) -> Sequence[ScheduleAnswer | ProblemError]:
        body = b"[" + b",".join(item.call.body or b"" for item in items) + b"]"
        answer = await self._transport.once(self._call("POST", "/v1/messages/batch", body))
        results = answer.read(models.BatchResults).results
        _check(answer, [item.schedule_id for item in items], results, "schedule_id")
        try:
            return [
                error_of(each.error) if each.error else ScheduleAnswer(**each.model_dump(exclude_unset=True))
                for each in results
            ]
        except ValidationError as error:
            raise garbled(answer.server, True, error) from error

    async def put(self, message: models.Message, *, if_version: str | None = None) -> models.Scheduled:
        """Creates the message with this schedule_id, or replaces it while it is PENDING.

        With a version, a message that has another one is left, with a PreconditionFailedError.
        """
        return await self._change("PUT", message.schedule_id or "", message, if_version)

    async def patch(
        self, schedule_id: str, change: models.Change, *, if_version: str | None = None
    ) -> models.Scheduled:
        """Changes a message while it is PENDING, or a series from its next occurrence on."""
        return await self._change("PATCH", schedule_id, change, if_version)

    async def _change(self, method: str, schedule_id: str, to: Model, if_version: str | None) -> models.Scheduled:
        path = path_of("/v1/messages/{}", schedule_id)
        answer = await self._transport.do(self._call(method, path, wire(to), condition(if_version)))
        scheduled = answer.read(models.Scheduled)
        _check(answer, [schedule_id], [scheduled], "schedule_id")
        return scheduled

    async def move(
        self, schedule_id: str, to: datetime | timedelta, *, if_version: str | None = None
    ) -> models.Scheduled:
        """Moves a message to another time, or to one after now."""
        if not isinstance(to, (datetime, timedelta)):
            raise UsageError("give the time as a datetime, or the delay as a timedelta")
        change = models.Change(delay=to) if isinstance(to, timedelta) else models.Change(execution_time=to)
        return await self.patch(schedule_id, change, if_version=if_version)

    async def pause_series(self, schedule_id: str) -> None:
        """Pauses a series. No other occurrence begins until it is resumed."""
        await self.patch(schedule_id, models.Change(paused=True))

    async def resume_series(self, schedule_id: str) -> None:
        """Lets a paused series go on with the first occurrence after now."""
        await self.patch(schedule_id, models.Change(paused=False))

    async def trigger(self, schedule_id: str, *, if_version: str | None = None) -> models.Scheduled:
        """Begins an occurrence of a series out of turn. It is a message of its own, whose id is in the answer."""
        path = path_of("/v1/messages/{}/trigger", schedule_id)
        return await self._ask(models.Scheduled, "POST", path, None, condition(if_version))

    async def cancel(self, schedule_id: str) -> None:
        """Cancels a message. If this returns, that is a guarantee: the message is never delivered.

        If delivery may have begun, it raises a TooLateError.
        """
        call = self._call("DELETE", path_of("/v1/messages/{}", schedule_id))
        await self._transport.retry(True, lambda: self._cancels.call(Item(schedule_id, call)))

    async def _cancel_alone(self, item: Item[None]) -> None:
        answer = await self._transport.once(item.call)
        cancelled = answer.read(models.Cancelled)
        _check(answer, [(item.schedule_id, "CANCELLED")], [cancelled], "schedule_id", "status")

    async def cancel_all(self, schedule_ids: Sequence[str]) -> list[models.CancelResult]:
        """Cancels up to 10,000 messages in one request. A result without an error is the same guarantee."""
        return await self._many("cancel", schedule_ids, "CANCELLED")

    async def redrive(self, schedule_ids: Sequence[str]) -> list[models.CancelResult]:
        """Tries up to 10,000 messages again that failed. Each is PENDING then, or its result has an error."""
        return await self._many("redrive", schedule_ids, "PENDING")

    async def purge(self, schedule_ids: Sequence[str]) -> list[models.CancelResult]:
        """Deletes up to 10,000 messages that failed. Each is gone then, or its result has an error.

        It is not repeated once it may have been done: the id may be another message's by then.
        """
        return await self._many("purge", schedule_ids, "DELIVERY_FAILED", repeatable=False)

    async def _many(
        self, what: str, schedule_ids: Sequence[str], status: models.Status, repeatable: bool = True
    ) -> list[models.CancelResult]:
        body = wire(models.Cancel(schedule_ids=list(schedule_ids)))
        answer = await self._transport.do(self._call("POST", f"/v1/messages/{what}", body, repeatable=repeatable))
        results = answer.read(models.CancelResults).results
        _check(answer, [(each, status) for each in schedule_ids], results, "schedule_id", "status")
        return results

    async def cancel_where(self, filter: models.JobFilter) -> str:
        """Starts a job that cancels the pending messages that a filter selects, and returns its id."""
        return await self._start_job("cancel", filter)

    async def redrive_where(self, filter: models.JobFilter) -> str:
        """Starts a job that tries the failed messages again that a filter selects, and returns its id."""
        return await self._start_job("redrive", filter)

    async def purge_where(self, filter: models.JobFilter) -> str:
        """Starts a job that deletes the failed messages that a filter selects, and returns its id."""
        return await self._start_job("purge", filter)

    async def _start_job(self, what: str, filter: models.JobFilter) -> str:
        # It is not repeated once it may have been done: there would be two jobs.
        body = wire(models.Cancel(filter=filter))
        return (await self._ask(models.JobStarted, "POST", f"/v1/messages/{what}", body)).job_id

    async def job(self, job_id: str) -> models.Job:
        """Says how far a job has come."""
        return await self._ask(models.Job, "GET", path_of("/v1/jobs/{}", job_id))

    async def wait_job(self, job_id: str) -> models.Job:
        """Waits until a job is done."""
        pause = _PAUSE_LEAST
        while (job := await self.job(job_id)).state != "done":
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PAUSE_LONGEST)
        return job

    async def _cancel_together(self, items: Sequence[Item[None]]) -> Sequence[ProblemError | None]:
        body = wire(models.Cancel(schedule_ids=[item.schedule_id for item in items]))
        answer = await self._transport.once(self._call("POST", "/v1/messages/cancel", body))
        results = answer.read(models.CancelResults).results
        _check(answer, [(item.schedule_id, "CANCELLED") for item in items], results, "schedule_id", "status")
        return [error_of(each.error) if each.error else None for each in results]

    async def get(self, schedule_id: str) -> models.StoredMessage:
        """Reads a message."""
        return await self._ask(models.StoredMessage, "GET", path_of("/v1/messages/{}", schedule_id))

    async def messages(
        self,
        *,
        status: models.Status | None = None,
        channel: str | None = None,
        label: str | None = None,
        id_prefix: str | None = None,
        recurring: bool | None = None,
        from_: datetime | None = None,
        to: datetime | None = None,
        page_size: int = _PAGE,
    ) -> AsyncIterator[models.StoredMessage]:
        """Reads messages page by page, in the order of their execution times.

        Args:
            status: Only those of this status.
            channel: Only those to this channel.
            label: Only those with this label.
            id_prefix: Only those whose schedule_id begins so.
            recurring: Only those with a recurrence, or only those without.
            from_: Only those with an execution time at or after this.
            to: Only those with an execution time before this.
            page_size: How many are in one answer; at most 1,000.
        """
        select = {"status": status, "channel": channel, "label": label, "idPrefix": id_prefix, "recurring": recurring}
        times = {"from": instant(from_), "to": instant(to)}
        cursor: str | None = None
        while True:
            path = "/v1/messages" + query_of(**select, **times, limit=page_size, cursor=cursor)
            page = await self._ask(models.MessagePage, "GET", path)
            for message in page.messages:
                yield message
            cursor = page.next_cursor
            if cursor is None:
                return

    async def preview(
        self, recurrence: models.Recurrence, *, from_: datetime | None = None, count: int | None = None
    ) -> list[models.Occurrence]:
        """Returns the first occurrences of a rule that are not before a time, by default ten after now."""
        given = {name: value for name, value in (("from_", from_), ("count", count)) if value is not None}
        body = wire(models.Preview.model_validate({"recurrence": recurrence, **given}))
        call = self._call("POST", "/v1/recurrences/preview", body, repeatable=True)
        return (await self._transport.do(call)).read(models.Occurrences).occurrences

    async def upcoming(
        self,
        *,
        from_: datetime | None = None,
        to: datetime | None = None,
        step: timedelta | None = None,
        channel: str | None = None,
    ) -> list[models.UpcomingSlot]:
        """Says how many messages are due when, by default in the next hour."""
        times = {name: instant(at) for name, at in (("from", from_), ("to", to)) if at is not None}
        query = query_of(**times, step=None if step is None else duration(step), channel=channel)
        return (await self._ask(models.Upcoming, "GET", "/v1/upcoming" + query)).slots

    async def failures(
        self, *, channel: str | None = None, from_: datetime | None = None, to: datetime | None = None
    ) -> models.Failures:
        """Groups messages that failed by their channels and errors."""
        times = {name: instant(at) for name, at in (("from", from_), ("to", to)) if at is not None}
        return await self._ask(models.Failures, "GET", "/v1/failures" + query_of(channel=channel, **times))

    async def define_task(self, task: models.TaskDefinition) -> models.Task:
        """Inserts, updates or deletes a task, which is a series in the words of a task scheduler."""
        return await self._ask(models.Task, "POST", "/schedulers", wire(task))

    async def tasks(
        self, *, name: str | None = None, unit: models.TimeUnit | None = None
    ) -> AsyncIterator[models.Task]:
        """Reads the tasks that are not deleted, by when they first begin."""
        path = "/schedulers" + query_of(name=name, unit=unit)
        while True:
            answer = await self._transport.do(self._call("GET", path))
            for task in answer.read(list[models.Task]):
                yield task
            path = answer.headers.get("Link", "").removeprefix("<").removesuffix('>; rel="next"')
            if path == "":
                return

    # Inboxes

    async def read_inbox(
        self, inbox: str, *, after: str | None = None, limit: int | None = None, wait: timedelta = _NO_TIME
    ) -> models.InboxPage:
        """Reads messages of an inbox. It removes none: a reader keeps the page's next_cursor, and goes on after that.

        It waits for a message if there is none, at most for 30 s.
        """
        path = path_of("/v1/inbox/{}", inbox) + query_of(after=after, limit=limit, wait=duration(wait))
        return await self._ask(models.InboxPage, "GET", path, wait=wait)

    async def follow(self, inbox: str, *, after: str | None = None) -> AsyncIterator[models.InboxPage]:
        """Reads an inbox page by page, and waits for new messages. No page is empty."""
        while True:
            page = await self.read_inbox(inbox, after=after, wait=timedelta(seconds=30))
            if page.messages:
                yield page
            after = page.next_cursor

    async def receive(
        self,
        inbox: str,
        consumer: str,
        *,
        limit: int = 100,
        wait: timedelta = _NO_TIME,
        visibility: timedelta = timedelta(seconds=30),
    ) -> list[models.ReceivedMessage]:
        """Receives messages of an inbox for a consumer. What is not acknowledged comes again after its visibility.

        Args:
            inbox: The name of the inbox.
            consumer: Those that receive for the same consumer share its messages.
            limit: How many messages at most.
            wait: How long to wait for a message if there is none; at most 30 s.
            visibility: How long nobody else receives the messages: longer than it takes to handle all of them.
        """
        return (await self._receive(inbox, consumer, limit, wait, visibility)).read(models.Received).messages

    async def _receive(self, inbox: str, consumer: str, limit: int, wait: timedelta, visibility: timedelta) -> Answer:
        check_durations(wait=wait, visibility=visibility)
        body = wire(models.Receive(limit=limit, wait=wait, visibility=visibility))
        path = path_of("/v1/inbox/{}/consumers/{}/receive", inbox, consumer)
        return await self._transport.do(self._call("POST", path, body, repeatable=True, wait=wait))

    async def ack(self, inbox: str, consumer: str, receipts: Sequence[str]) -> list[models.AckResult]:
        """Acknowledges up to 1,000 messages by their receipts. Each stands or falls alone."""
        path = path_of("/v1/inbox/{}/consumers/{}/ack", inbox, consumer)
        call = self._call("POST", path, wire(models.Acknowledge(receipts=list(receipts))), repeatable=True)
        answer = await self._transport.do(call)
        results = answer.read(models.AckResults).results
        _check(answer, [(each, True) for each in receipts], results, "receipt", "acked")
        return results

    async def consume(
        self,
        inbox: str,
        consumer: str,
        handle: Handler,
        *,
        limit: int = 10,
        visibility: timedelta = timedelta(seconds=30),
        stop: asyncio.Event | None = None,
    ) -> None:
        """Receives messages of an inbox for a consumer until it is to stop, and handles one after the other.

        It acknowledges those for which `handle`, which may be async, did not raise: at the end of a batch, and after
        each message that takes more than a second. The others come again after their visibility; the logger
        "postdate" says why. After three quarters of that, which all messages of a batch share, an async `handle` is
        cancelled. If the server does not answer, or with a status of 5xx, it goes on; other problems it raises.
        """
        check_durations(visibility=visibility)
        stop = stop or asyncio.Event()
        # A receive that nobody waits for any more may hold up messages, so it waits less than it may.
        wait = min(timedelta(seconds=5), visibility / 4)

        async def ack(handled: Sequence[models.ReceivedMessage]) -> None:
            try:
                results = await self.ack(inbox, consumer, [message.receipt for message in handled])
            except PostdateError as error:
                _raise_unless_passing(error)
                log.warning("%d messages come again: they were handled, but not acknowledged: %s", len(handled), error)
                return
            for message, result in zip(handled, results, strict=True):
                if result.error is not None:
                    again = "message %s comes again: it was handled, but not acknowledged: %s"
                    log.warning(again, message.schedule_id, result.error.detail)

        while not stop.is_set():
            try:
                answer = await _unless(stop, self._receive(inbox, consumer, limit, wait, visibility))
                messages = answer.read(models.Received).messages if answer else []
            except PostdateError as error:
                _raise_unless_passing(error)
                log.warning("nothing is received from the inbox %s: %s", inbox, error)
                await _unless(stop, asyncio.sleep(_PAUSE_LONGEST))
                continue
            if answer is not None:
                until = answer.asked_at + visibility.total_seconds() * 3 / 4
                await Batch(handle, ack, until).handle_all(messages, stop.is_set)


def _raise_unless_passing(error: PostdateError) -> None:
    """Raises an error that ends a consumer's loop, which goes on as long as the server may answer later."""
    failing = isinstance(error, ProblemError) and error.status >= 500  # noqa: PLR2004
    if not failing and not isinstance(error, NoAnswerError):
        raise error


def _check(answer: Answer, asked: Sequence[object], results: Sequence[object], *names: str) -> None:
    """Checks that an answer says of each item what was asked for, in the fields with these names, or an error."""
    if len(results) != len(asked):
        raise garbled(answer.server, True, f"it has {len(results)} results for {len(asked)} items")
    said = attrgetter(*names)
    for want, result in zip(asked, results, strict=True):
        if getattr(result, "error", None) is None and said(result) != want:
            raise garbled(answer.server, True, f"it says {said(result)} where {want} was asked for")


async def _unless(stop: asyncio.Event, call: Awaitable[T]) -> T | None:
    """Returns what a call returns, or None if it is to stop before."""
    calling, stopping = asyncio.ensure_future(call), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([calling, stopping], return_when=asyncio.FIRST_COMPLETED)
        return calling.result() if calling.done() else None
    finally:
        calling.cancel()
        stopping.cancel()
