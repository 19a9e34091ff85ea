"""`@tool`: a plain typed function that an agent may call, described by its own signature and docstring."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

_CONFIG = ConfigDict(extra="forbid", strict=True, populate_by_name=False)


class ToolArgumentError(ValueError):
    """The agent's arguments don't fit the tool; the message is meant for the agent."""


class ToolRejected(Exception):
    """Raised inside a tool when a person or a policy refuses the call: rejected, which is not failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function offered to an agent. `parameters` is the JSON Schema of its arguments, an object.

    `needs_approval` says that no call of it runs before a person allows it.

    Calling the tool calls the function as it is written; agents' arguments go through `bind` first.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    function: Callable[..., Any]
    arguments: type[BaseModel]
    needs_approval: bool = False

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments that JSON `arguments` mean, defaults left out.

        Strict: "1" is no integer and an unknown name is refused; what JSON can't say directly (tuples, dates,
        enumerations, models) is read from its JSON form. Raises ToolArgumentError for the agent to read.
        """
        try:
            bound = self.arguments.model_validate(arguments)
        except ValidationError:
            bound = self._bind_json(arguments)
        names = {key: field.alias or key for key, field in self.arguments.model_fields.items()}
        return {names[key]: getattr(bound, key) for key in bound.model_fields_set}

    async def call(self, arguments: Mapping[str, Any]) -> Any:
        """Bind and call. A sync function runs right here, on the calling thread. Raises ToolArgumentError."""
        result = self.function(**self.bind(arguments))
        return await result if inspect.isawaitable(result) else result

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def _bind_json(self, arguments: Mapping[str, Any]) -> BaseModel:
        try:
            return self.arguments.model_validate_json(json.dumps(arguments))
        except ValidationError as error:
            problems = "; ".join(_problem(dict(item)) for item in error.errors(include_url=False))
            raise ToolArgumentError(f"{self.name}: {problems}") from error


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *, name: str | None = None, description: str | None = None, needs_approval: bool = False
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    needs_approval: bool = False,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Offer a typed function, sync or async, to agents: `@tool` or `@tool(name=…, description=…)`.

    Every parameter needs an annotation; `Annotated[str, "the city"]` describes it. The description defaults to
    the docstring. A call of a tool that `needs_approval` parks the turn until the eval responds. Raises TypeError
    naming the tool and the parameter that can't be described to an agent.
    """

    def wrap(target: Callable[..., Any]) -> Tool:
        label = name or getattr(target, "__name__", type(target).__name__)
        model = _arguments_model(label, target)
        return Tool(
            name=label,
            description=description if description is not None else inspect.getdoc(target) or "",
            parameters=_schema(model),
            function=target,
            arguments=model,
            needs_approval=needs_approval,
        )

    return wrap if function is None else wrap(function)


class _Untitled(GenerateJsonSchema):
    """Parameter titles only repeat the names; a model pays tokens for them on every request."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(schema_generator=_Untitled)
    schema.pop("title", None)
    schema.setdefault("properties", {})
    return schema


def _arguments_model(label: str, target: Callable[..., Any]) -> type[BaseModel]:
    try:
        hints = get_type_hints(target, include_extras=True)
    except NameError as error:
        raise TypeError(f"tool {label}: an annotation can't be resolved: {error}") from error
    fields = {key: (annotation, field) for key, annotation, field in _fields(label, target, hints)}
    try:
        return create_model(label, __config__=_CONFIG, **cast("Any", fields))
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise TypeError(f"tool {label}: a parameter's type has no JSON form: {error}") from error


def _fields(label: str, target: Callable[..., Any], hints: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Fields are numbered and aliased, so that a parameter may be called `schema`, `_x` or `model_id`."""
    for index, parameter in enumerate(inspect.signature(target).parameters.values()):
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"tool {label}: parameter {parameter.name!r} can't be passed by name")
        if parameter.name not in hints:
            raise TypeError(f"tool {label}: parameter {parameter.name!r} needs a type annotation")
        default = ... if parameter.default is parameter.empty else parameter.default
        yield f"p{index}", _described(hints[parameter.name]), Field(default, alias=parameter.name)


def _described(annotation: Any) -> Any:
    """The annotation with its plain text, if it has one, as pydantic's description."""
    metadata = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    text = next((item for item in metadata if isinstance(item, str)), None)
    return annotation if text is None else Annotated[annotation, Field(description=text)]


def _problem(error: dict[str, Any]) -> str:
    place = ".".join(str(part) for part in error["loc"])
    given = f", not {json.dumps(error['input'])[:80]}" if error["type"] not in ("missing", "extra_forbidden") else ""
    return f"{place}: {error['msg']}{given}" if place else str(error["msg"])
