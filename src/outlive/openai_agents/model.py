"""A model whose requests are calls of a run: each is recorded once, and what is recorded is not asked again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any, cast

import openai
from agents import Agent, ModelSettings, RunConfig
from agents.exceptions import ModelTimeoutError, UserError
from agents.items import ModelResponse, TResponseStreamEvent
from agents.models.default_models import get_default_model
from agents.models.interface import Model, ModelTracing
from agents.retry import ModelRetrySettings
from genai_prices import Usage, calc_price

from outlive.harness.units import AskedAgain, Json, ModelRefused
from outlive.openai_agents.items import brief, response_of
from outlive.openai_agents.lanes import Turning

# Of the provider's answers: it has not taken the request, and says so.
_BUSY = (429, 503)
# It may have done it, and asking again may help.
_PASSING = (408, 409)


class Recorded(Model):
    """Stands in the place of an agent's model, in a clone of it."""

    def __init__(self, turning: Turning, name: str, agent: Agent[Any], config: RunConfig) -> None:
        self._turning, self._name, self._agent, self._config = turning, name, agent, config
        self._timeout = _timeout(agent, config)

    async def get_response(  # noqa: PLR0913 - as the SDK asks
        self, system_instructions: str | None, input: Any, model_settings: ModelSettings, tools: list[Any],
        output_schema: Any, handoffs: list[Any], tracing: ModelTracing, *, previous_response_id: str | None,
        conversation_id: str | None, prompt: Any,
    ) -> ModelResponse:  # fmt: skip
        """See the base. Raises ModelRefused for an answer that would stay the same."""
        turning, asked = self._turning, self._asked()

        async def asking() -> ModelResponse:
            model = asked if isinstance(asked, Model) else self._config.model_provider.get_model(asked)
            request = model.get_response(
                system_instructions, input, model_settings, tools, output_schema, handoffs, ModelTracing.DISABLED,
                previous_response_id=previous_response_id, conversation_id=conversation_id, prompt=prompt,
            )  # fmt: skip
            return await asyncio.wait_for(request, self._timeout)

        async def body() -> Json:
            name = _name(asked)
            response = brief(await _classified(asking, name))
            cast(Json, response["usage"])["cost"] = _priced(response, name)
            return {"response": response}

        mark = turning.guest.digest(_prompt(system_instructions, model_settings, tools, output_schema, handoffs))
        await turning.close()
        recorded = await turning.ledger.model(self._name, _name(asked), mark, body)
        response = response_of(cast(Json, recorded["response"]))
        turning.response = response
        calls = [str(getattr(one, "call_id", "")) for one in response.output if one.type == "function_call"]
        await turning.open(calls)
        return response

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[TResponseStreamEvent]:
        """Raises UserError: a stream is not recorded."""
        raise UserError("a run records whole responses: use run, not run_streamed")

    def _asked(self) -> Model | str | None:
        """The agent's model, as the SDK would choose it."""
        return self._config.model or self._agent.model


def settings_of(agent: Agent[Any]) -> ModelSettings:
    """The agent's settings without what is done here: timeouts and retries of requests."""
    return replace(agent.model_settings, timeout=None)


def config_of(config: RunConfig) -> RunConfig:
    """The configuration of the SDK's runner under which requests come here, once, and nothing is traced."""
    given = config.model_settings or ModelSettings()
    once = replace(given, timeout=None, retry=ModelRetrySettings(max_retries=0))
    return replace(config, model=None, model_settings=once, tracing_disabled=True)


def _timeout(agent: Agent[Any], config: RunConfig) -> float | None:
    over = config.model_settings.timeout if config.model_settings is not None else None
    return over if over is not None else agent.model_settings.timeout


def _name(model: Model | str | None) -> str:
    if isinstance(model, Model):
        return str(getattr(model, "model", type(model).__name__))
    return model or get_default_model()


def _prompt(*said: Any) -> str:
    """What a request says besides its items."""
    instructions, settings, tools, output, handoffs = said
    known = [
        instructions, sorted((one.name, str(getattr(one, "params_json_schema", ""))) for one in tools),
        sorted(one.tool_name for one in handoffs), output.name() if output is not None else None,
        settings.to_json_dict(),
    ]  # fmt: skip
    return json.dumps(known, sort_keys=True, default=str)


async def _classified(asking: Callable[[], Awaitable[ModelResponse]], model: str) -> ModelResponse:
    """Do it, and say of an error what it means for asking again.

    What may pass although it may have been done, and paid for, is in doubt, and asked again. What would come out the
    same, or is nobody's answer but a mistake of code, is final.
    """
    try:
        return await asking()
    except (openai.APIConnectionError, ModelTimeoutError, OSError):
        raise
    except Exception as error:
        status = getattr(error, "status_code", None)
        if status in _BUSY:
            headers = getattr(getattr(error, "response", None), "headers", None) or {}
            raise AskedAgain(str(error), headers.get("retry-after")) from error
        if isinstance(status, int) and (status >= 500 or status in _PASSING):
            raise
        context = getattr(error, "code", None) == "context_length_exceeded"
        said = str(error) if status is not None else f"{type(error).__name__}: {error}"
        raise ModelRefused(said, model, status, context=context) from error


def _priced(response: Json, model: str) -> str | None:
    """In US dollars, as a text; None for a model that genai-prices does not know."""
    used = cast("dict[str, Any]", response["usage"])
    usage = Usage(
        input_tokens=used["input_tokens"], output_tokens=used["output_tokens"],
        cache_read_tokens=used.get("cache_read_tokens"),
    )  # fmt: skip
    try:
        price: Decimal = calc_price(usage, model).total_price
    except (LookupError, ValueError):
        return None
    return str(price)
