"""What the models of the API have in common."""

import base64
import json
import re
from datetime import datetime, timedelta, timezone
from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_serializer,
    field_validator,
)
from pydantic.alias_generators import to_camel

from .errors import UsageError

_UNITS = {"h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1000, "us": 1, "µs": 1, "ns": 0.001}
_PART = re.compile(r"([0-9.]+)(h|ms|m|s|us|µs|ns)")


def _alias(name: str) -> str:
    return to_camel(name.rstrip("_"))  # from_ is from


class Model(BaseModel):
    """A model of the API, whose names are in camel case there. Fields that are not set are not sent."""

    model_config = ConfigDict(
        alias_generator=_alias, populate_by_name=True, extra="allow", ser_json_inf_nan="constants"
    )

    @field_validator("*", mode="wrap")
    @classmethod
    def _read(cls, value: Any, read: ValidatorFunctionWrapHandler) -> Any:
        """Also reads Go's form of durations, and words that only a later version of the API has."""
        try:
            return read(value)
        except ValidationError as error:
            kinds = {each["type"] for each in error.errors()}
            if kinds == {"literal_error"}:
                return value
            if kinds == {"time_delta_parsing"} and _PART.sub("", value) == "":
                return timedelta(microseconds=sum(float(n) * _UNITS[unit] for n, unit in _PART.findall(value)))
            raise

    @field_serializer("*", mode="wrap", when_used="json")
    def _write(self, value: Any, write: SerializerFunctionWrapHandler) -> Any:
        """Writes times and durations in forms that the API takes: it has no years, for example."""
        if isinstance(value, timedelta):
            return duration(value)
        if isinstance(value, datetime) and value.tzinfo:
            return instant(value)
        return write(value)


def duration(time: timedelta) -> str:
    """Returns a duration in the form of the API."""
    micros = time // timedelta(microseconds=1)
    return f"{micros}us" if micros % 1000 else f"{micros // 1000}ms"


def instant(time: datetime | None) -> str | None:
    """Returns a time in the form of the API."""
    if time is not None and time.tzinfo is None:
        raise UsageError("the time has no zone: use datetime.now(timezone.utc), for example")
    return time.astimezone(timezone.utc).isoformat().replace("+00:00", "Z") if time else None


def wire(model: Model) -> bytes:
    """Returns the JSON that a request has for a model. A payload of bytes is sent as base64."""
    payload = getattr(model, "payload", None)
    if isinstance(payload, (bytes, bytearray, memoryview)):
        text = base64.b64encode(payload).decode()
        model = model.model_copy(update={"payload": text, "payload_encoding": "base64"})
    try:
        form = model.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return json.dumps(form, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except ValueError as error:
        raise UsageError(f"this cannot be sent as JSON: {error}") from error
