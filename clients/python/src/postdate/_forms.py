"""What requests say, in the forms of the API."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping
from datetime import timedelta
from urllib.parse import quote, urlencode
from uuid import UUID

from . import models
from ._model import wire
from .errors import UsageError

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"([!-~]([\t -~]*[!-~])?)?")


def named(message: models.Message) -> tuple[str, bytes]:
    """Returns the id of a message, which it gets if it has none, and its JSON."""
    if message.schedule_id == "":
        raise UsageError('"" is no schedule_id: leave it out, and the message gets one')
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
        raise UsageError(f'"{server}" is not the address of a server: write it like http://127.0.0.1:8080')
    return address


def path_of(form: str, *values: str) -> str:
    """Returns a path like /v1/messages/{} with values in it."""
    for value in values:
        if not isinstance(value, str) or value in ("", ".", ".."):
            raise UsageError(f"{value!r} is no name")
    return form.format(*(quote(encoded(value), safe="") for value in values))


def encoded(text: str) -> bytes:
    """Returns the bytes of a text."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"this text cannot be sent: {error}") from error


def check_durations(**given: object) -> None:
    """Checks that options are durations."""
    for name, value in given.items():
        if not isinstance(value, timedelta):
            raise UsageError(f"{name} is no timedelta: give one like timedelta(seconds=30)")


def checked(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Returns headers that can be sent. The error does not quote what is in them: it may be a key."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            what = {"Authorization": "the API key", "Postdate-Tenant": "the tenant"}.get(name, f"the header {name!r}")
            why = "it has a line break, a space at its end, or a character that a header cannot have"
            raise UsageError(f"{what} cannot be sent: {why}")
    return headers


def query_of(**given: str | int | None) -> str:
    """Returns a query of what is not None."""
    present = {name: encoded(_text(value)) for name, value in given.items() if value is not None}
    return f"?{urlencode(present)}" if present else ""


def _text(value: str | int) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def condition(version: str | None) -> dict[str, str]:
    """Returns the header that asks for a version of a message."""
    return {} if version is None else {"If-Match": f'"{version}"'}
