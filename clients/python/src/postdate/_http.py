"""Makes requests, and tries them again where that may help and is safe."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import anyio
import httpx
from pydantic import TypeAdapter, ValidationError

from .errors import NoAnswerError, PostdateError, ProblemError, UsageError, garbled
from .models import Problem
from .problems import BY_TYPE, ExistsError, NotFoundError, TooLateError

T = TypeVar("T")

# The pause before all servers are tried again doubles from the least to the longest. It is shortened by up to a half
# at random, so that callers do not come back at the same time. In seconds, as all here.
_PAUSE_LEAST = 0.1
_PAUSE_LONGEST = 2.0

_CONNECT_TIMEOUT = 10.0


@dataclass(frozen=True)
class Call:
    """A call at the level of HTTP."""

    method: str
    path: str
    """With its query, such as /v1/messages?limit=10."""
    body: bytes | None = None
    """JSON, unless the headers have another Content-Type."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # with the API key
    repeatable: bool = False
    """It is safe to do the call twice, so it is tried again if it may have been done. A GET always is."""
    wait: timedelta = timedelta()
    """How long the server may wait before it answers."""


@dataclass(frozen=True)
class Answer:
    """A server's answer that is no error."""

    server: str
    status: int
    headers: httpx.Headers
    content: bytes
    asked_at: float
    """When the request was begun to which this is the answer, by time.monotonic()."""

    def read(self, kind: type[T], may_be_done: bool = True) -> T:
        """Reads the JSON of the answer."""
        try:
            return TypeAdapter(kind).validate_json(self.content)
        except ValidationError as error:
            raise garbled(self.server, may_be_done, error) from error


class Transport:
    """Makes requests, to one server until it fails, then to the next."""

    def __init__(self, servers: Sequence[str], http: httpx.AsyncClient, timeout: timedelta, retry_for: timedelta):
        """Makes requests to servers, each of which has no slash at its end."""
        self._servers = servers
        self._http = http
        self._timeout = timeout
        self._retry_for = retry_for
        self._current = 0

    @property
    def server(self) -> str:
        """The server that the next request goes to."""
        return self._servers[self._current % len(self._servers)]

    async def do(self, call: Call) -> Answer:
        """Makes a call, and tries it again where that may help and is safe."""
        return await self.retry(call.repeatable or call.method == "GET", lambda: self.once(call))

    async def retry(self, repeatable: bool, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeats what makes one try, as long as that may help and is safe."""
        end = time.monotonic() + self._retry_for.total_seconds()  # by a clock that nobody sets
        lost, longest, tries = False, _PAUSE_LEAST, 0
        while True:
            try:
                return await attempt()
            except PostdateError as error:
                tries += 1
                if not _is_passing(error):
                    raise self._since(lost and not _is_conclusive(error), error) from error.__cause__
                lost = lost or error.may_be_done
                pause = 0.0  # before the next server
                if tries % len(self._servers) == 0:
                    pause = max(longest * random.uniform(0.5, 1), _retry_after(error))  # noqa: S311
                    longest = min(2 * longest, _PAUSE_LONGEST)
                if (lost and not repeatable) or time.monotonic() + pause > end:
                    raise self._since(lost, error) from error.__cause__
            await asyncio.sleep(pause)

    def _since(self, lost: bool, error: PostdateError) -> PostdateError:
        """Returns the error of a call, whose outcome is unknown if an earlier try was lost, whatever the last says."""
        if not lost or error.may_be_done:
            return error
        return NoAnswerError(self.server, True, f"an earlier try was lost; the last one: {error}")

    async def once(self, call: Call) -> Answer:
        """Makes one request. If it fails and another server may do better, the next goes there."""
        current, server = self._current, self.server
        try:
            return await self._request(server, call)
        except PostdateError as error:
            if _is_passing(error) and self._current == current:
                self._current += 1
            raise

    async def _request(self, server: str, call: Call) -> Answer:
        if self._http.is_closed:
            raise UsageError("the client is closed")
        limit = (self._timeout + call.wait).total_seconds()
        headers = {"Content-Type": "application/json"} if call.body is not None else {}
        asked_at = time.monotonic()
        try:
            with anyio.fail_after(limit):
                response = await self._http.request(
                    call.method,
                    server + call.path,
                    content=call.body,
                    headers={**headers, **call.headers},
                    timeout=httpx.Timeout(None, connect=_CONNECT_TIMEOUT),
                    follow_redirects=False,  # one may turn a POST into a GET
                )
        except TimeoutError as error:
            late = TimeoutError(f"none within {limit:g} s")
            raise NoAnswerError(server, call.method != "GET", late) from error
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol) as error:
            raise NoAnswerError(server, False, error) from error
        except httpx.HTTPError as error:
            raise NoAnswerError(server, call.method != "GET", error) from error
        if not response.is_success:
            raise _problem_of(response)
        return Answer(server, response.status_code, response.headers, response.content, asked_at)


def error_of(problem: Problem, **more: Any) -> ProblemError:
    """Returns the exception for a problem, such as that of one item of many."""
    return BY_TYPE.get(problem.type, ProblemError)(problem, **more)


def _problem_of(response: httpx.Response) -> ProblemError:
    status = response.status_code
    try:
        problem = Problem.model_validate_json(response.content)
        problem.status = status
    except ValidationError:  # a proxy's page: only its status is known
        title = f"the server answered {status} {response.reason_phrase}"
        problem = Problem.model_validate({"type": "about:blank", "title": title, "status": status, "detail": ""})
    after = response.headers.get("Retry-After", "")  # a date would need a clock that is right
    retry_after = timedelta(seconds=int(after)) if re.fullmatch("[0-9]{1,9}", after) else None
    return error_of(problem, request_id=response.headers.get("X-Request-Id"), retry_after=retry_after)


def _is_passing(error: PostdateError) -> bool:
    """Whether the same call may succeed later or at another server."""
    if isinstance(error, NoAnswerError):
        return not error.is_garbled
    return isinstance(error, ProblemError) and error.status in (408, 429, 502, 503, 504, 507)


def _is_conclusive(error: PostdateError) -> bool:
    """Whether an error decides the outcome of a call even if an earlier try was lost."""
    return isinstance(error, (NotFoundError, ExistsError, TooLateError))


def _retry_after(error: PostdateError) -> float:
    asked = error.retry_after if isinstance(error, ProblemError) else None
    return asked.total_seconds() if asked else 0.0
