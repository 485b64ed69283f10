"""What requests say, in the forms of the API."""

from __future__ import annotations

import secrets
import time
from datetime import datetime, timedelta
from urllib.parse import quote, urlencode
from uuid import UUID

from . import models
from ._model import wire


def named(message: models.Message) -> tuple[str, str]:
    """Returns the id of a message, which it gets if it has none, and its JSON."""
    schedule_id = message.schedule_id or new_id()
    return schedule_id, wire(message.model_copy(update={"schedule_id": schedule_id}))


def new_id() -> str:
    """Makes a UUID of version 7 (RFC 9562). It is new even if the clock is wrong."""
    at = (time.time_ns() // 1_000_000) & ((1 << 48) - 1)
    return str(UUID(int=at << 80 | 7 << 76 | secrets.randbits(12) << 64 | 2 << 62 | secrets.randbits(62)))


def address_of(server: str) -> str:
    """Returns the address of a server, without a slash at its end."""
    address = (server if "://" in server else f"http://{server}").rstrip("/")
    if not address.partition("://")[2] or not address.startswith(("http://", "https://")) or address.endswith("/v1"):
        raise ValueError(f'"{server}" is not the address of a server: write it like http://127.0.0.1:8080')
    return address


def path_of(form: str, *values: str) -> str:
    """Returns a path like /v1/messages/{} with values in it."""
    for value in values:
        if value in ("", ".", ".."):
            raise ValueError(f'"{value}" is no name: it would be another path')
    return form.format(*(quote(value, safe="") for value in values))


def query_of(**given: str | int | None) -> str:
    """Returns a query of what is not None."""
    present = {name: value for name, value in given.items() if value is not None}
    return f"?{urlencode(present)}" if present else ""


def condition(version: str | None) -> dict[str, str]:
    """Returns the header that asks for a version of a message."""
    return {} if version is None else {"If-Match": f'"{version}"'}


def duration(time: timedelta) -> str:
    """Returns a duration in the form of the API."""
    return f"{time // timedelta(milliseconds=1)}ms"


def instant(time: datetime | None) -> str | None:
    """Returns a time in the form of the API."""
    if time is not None and time.tzinfo is None:
        raise ValueError("the time has no zone: use datetime.now(timezone.utc), for example")
    return time.isoformat() if time else None
