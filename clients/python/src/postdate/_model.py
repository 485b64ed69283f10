"""What the models of the API have in common."""

import base64
import json
import re
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, ValidatorFunctionWrapHandler, field_validator
from pydantic.alias_generators import to_camel

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


def wire(model: Model) -> str:
    """Returns the JSON that a request has for a model. A payload of bytes is sent as base64."""
    payload = getattr(model, "payload", None)
    if isinstance(payload, bytes):
        text = base64.b64encode(payload).decode()
        model = model.model_copy(update={"payload": text, "payload_encoding": "base64"})
    form = model.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return json.dumps(form, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
