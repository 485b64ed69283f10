"""Makes the calls of the client."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, TypeVar

import httpx
from typing_extensions import Self

from ._forms import address_of, check_durations, checked
from ._http import Call, Transport
from .errors import UsageError

T = TypeVar("T")


class Caller:
    """What the parts of a client have in common."""

    def __init__(
        self,
        server: str | Sequence[str] | None,
        api_key: str | None,
        tenant: str | None,
        headers: Mapping[str, str] | None,
        timeout: timedelta,
        retry_for: timedelta,
        http: httpx.AsyncClient | None,
    ) -> None:
        """Makes one with the options of a client."""
        check_durations(timeout=timeout, retry_for=retry_for)
        server = server or os.environ.get("POSTDATE_SERVER") or "http://127.0.0.1:8080"
        api_key = api_key or os.environ.get("POSTDATE_API_KEY")
        tenant = tenant or os.environ.get("POSTDATE_AS_TENANT")
        self._headers = checked(
            {
                **({"Authorization": f"Bearer {api_key}"} if api_key else {}),
                **({"Postdate-Tenant": tenant} if tenant else {}),
                **(headers or {}),
            }
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._owns_http = http is None
        self._http = http or httpx.AsyncClient(limits=httpx.Limits(max_keepalive_connections=64))
        servers = [address_of(each) for each in ([server] if isinstance(server, str) else server)]
        self._transport = Transport(servers, self._http, timeout, retry_for)

    async def __aenter__(self) -> Self:
        """Returns the client."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the client."""
        await self.close()

    async def close(self) -> None:
        """Closes the connections."""
        if self._owns_http:
            await self._http.aclose()

    @property
    def server(self) -> str:
        """The server that the next call tries first."""
        return self._transport.server

    def _call(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, **more: Any
    ) -> Call:
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if loop is not self._loop:  # it cannot use the connections of another
            raise UsageError("a client is for one event loop, that of its first call: make one in each asyncio.run")
        return Call(method, path, body, {**self._headers, **checked(headers or {})}, **more)

    async def _ask(
        self,
        kind: type[T],
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        wait: timedelta = timedelta(),
    ) -> T:
        """Makes a call and reads its answer."""
        answer = await self._transport.do(self._call(method, path, body, headers, wait=wait))
        return answer.read(kind, may_be_done=method != "GET")
