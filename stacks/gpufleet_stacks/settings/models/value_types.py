"""Types of single values in a stack file, such as names, quantities and images, each with its own error message."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError, core_schema

from gpufleet import quantity
from gpufleet.arc.scale_set_args import LABEL_LIMIT
from gpufleet_stacks.settings.documented import Documented


class Model(Documented):
    """Base class of all sections of a stack file."""

    model_config = ConfigDict(hide_input_in_errors=True)


@dataclass(frozen=True)
class Text:
    """A text that must match a pattern, with its own error message. Editors show the pattern."""

    pattern: str
    limit: int
    what: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return handler(schema) | {"pattern": f"^({self.pattern})$", "maxLength": self.limit}

    def check(self, text: str) -> str:
        if len(text) > self.limit:
            raise PydanticCustomError(
                "text_too_long",
                "has {length} characters; at most {limit} are allowed, shorten it",
                {"length": len(text), "limit": self.limit},
            )
        if not re.fullmatch(self.pattern, text):
            raise PydanticCustomError("not_legal", "is not {what}", {"what": self.what})
        return text


_QUANTITY = r"([0-9]+(?:\.[0-9]+)?)(m|[kMGTPE]|[KMGTPE]i)?"
"""Pattern of quantities in a stack file, restricted to syntax that editors support too. Kubernetes also accepts
exponents (`1e3`), which a stack file never needs."""


@dataclass(frozen=True)
class Amount:
    """A Kubernetes quantity: text, or a number."""

    unit: str
    """Unit of a number without a suffix."""
    least: Decimal
    """Smallest plausible amount; 512 bytes of memory, for example, are a forgotten suffix."""
    examples: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"type": ["string", "number"], "pattern": f"^{_QUANTITY}$", "exclusiveMinimum": 0}

    def check(self, value: Any) -> str:
        context = {"unit": self.unit, "examples": self.examples}
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        # No machine has an amount that takes more than 20 characters.
        if not isinstance(value, str) or len(value) > 20 or not re.fullmatch(_QUANTITY, value):
            message = "is not a Kubernetes quantity; write for example {examples}"
            raise PydanticCustomError("quantity", message, context)
        if quantity.parsed(value) < self.least:
            message = "is too small (unit: {unit}); write for example {examples}"
            raise PydanticCustomError("quantity", message, context)
        return value


def _id(value: Any) -> Any:
    """Return an ID as text even where YAML reads a number, which would reach Helm as 1.234567e+06."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _day(value: Any) -> Any:
    """Return a date without the time that the engine adds: `2027-03-31 00:00:00 +0000 UTC`."""
    return value.removesuffix(" 00:00:00 +0000 UTC") if isinstance(value, str) else value


_WORD = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_TOKEN = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"

MOST = 2**31 - 1
"""Largest count or group ID; Kubernetes and ARC store them in 32 bits."""

Count = Annotated[int, Field(strict=True, ge=0, le=MOST)]
Switch = Annotated[bool, Field(strict=True)]
Filled = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Text(_WORD, 63, "a Kubernetes name: lower case letters, digits and '-'")]
ObjectName = Annotated[
    str, Text(rf"{_WORD}(\.{_WORD})*", 253, "the name of a Kubernetes object: lower case letters, digits, '-' and '.'")
]
SecretKeyName = Annotated[str, Text(r"[-._A-Za-z0-9]+", 253, "a key of a Secret: letters, digits, '-', '_' and '.'")]
Label = Annotated[
    str,
    Text(
        rf"{_WORD}(\.{_WORD})*",
        LABEL_LIMIT,
        "a runner label: lower case letters, digits, '-' and '.', as in the name of its Helm release",
    ),
]
AdditionalLabel = Annotated[
    str, Text(r"[-._A-Za-z0-9]+", 255, "an additional runner label: letters, digits, '-', '_' and '.'")
]
LabelKey = Annotated[
    str, Text(rf"({_WORD}(\.{_WORD})*/)?{_TOKEN}", 317, "the key of a Kubernetes label: NAME or DOMAIN/NAME")
]
LabelValue = Annotated[
    str, Text(rf"({_TOKEN})?", 63, "the value of a Kubernetes label: letters, digits, '-', '_' and '.'")
]
Labels = dict[LabelKey, LabelValue]
Cores = Annotated[str, Amount("cores", Decimal("0.001"), "8 or 500m")]
Size = Annotated[str, Amount("bytes", Decimal(1024) ** 2, "64Gi or 100G")]
Id = Annotated[
    str,
    BeforeValidator(_id),
    Text(r"[A-Za-z0-9.]+", 64, "an ID: letters and digits"),
    WithJsonSchema({"type": ["string", "integer"]}),
]
Address = Annotated[str, Text(r"[A-Za-z0-9:]([-A-Za-z0-9.:]*[A-Za-z0-9])?", 253, "an IP address or a host name")]
Folder = Annotated[str, Text(r"/[^\s:]*", 512, "an absolute path, beginning with '/'")]
Variable = Annotated[str, Text(r"[A-Za-z_][A-Za-z0-9_]*", 256, "the name of an environment variable")]
Date = Annotated[datetime.date, BeforeValidator(_day)]
Image = Annotated[str, Text(r"[A-Za-z0-9][-A-Za-z0-9._/:@]*", 512, "a container image: HOST/NAME:TAG")]
Version = Annotated[str, Text(r"[0-9]+\.[0-9]+\.[0-9]+([-+][-+.A-Za-z0-9]+)?", 64, "an exact version such as 0.14.2")]
RunnerVersion = Annotated[str, Text(r"[0-9]+\.[0-9]+\.[0-9]+", 32, "a runner version such as 2.338.0")]
GithubUrl = Annotated[
    str,
    Text(
        r"https://[A-Za-z0-9.-]+(:[0-9]+)?/[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)?",
        512,
        "a GitHub URL: write https://github.com/ORG or https://github.com/ORG/REPO",
    ),
]
