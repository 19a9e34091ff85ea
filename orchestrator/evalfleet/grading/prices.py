"""What model calls cost in US dollars: the experiment's own prices, else the kept price list of `genai-prices`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from evalfleet.model.experiment import Price
from evalfleet.model.usage import Usage

_MILLION = 1e6
_PREFIX = re.compile(r"[/:]")


class PriceList:
    """Prices usage; None wherever model, price or part of the usage is not known, so that unknown is never 0.

    `own` holds prices by model name as arms write it; they go before the kept list.
    """

    def __init__(self, own: Mapping[str, Price]) -> None:
        self._own = own

    def __call__(self, model: str | None, usage: Usage) -> float | None:
        """The US dollars of `usage` by `model`; cached tokens at their own price and never again as input."""
        if model is None or usage.total_tokens is None or usage.unknown_calls:
            return None
        price = self._own.get(model)
        return _published(model, usage) if price is None else _priced(price, usage)

    def knows(self, model: str | None) -> bool:
        """Whether a usage of `model` can be priced at all. Loads the kept list when it is first needed."""
        return self(model, Usage(input_tokens=1, output_tokens=1)) is not None

    def load(self, models: Iterable[str | None]) -> None:
        """Load what pricing these models needs: a third of a second that no running attempt should wait for."""
        for model in models:
            self.knows(model)


def _priced(price: Price, usage: Usage) -> float:
    """Without a price of its own a cached token costs what an input token does."""
    read = price.input if price.cache_read is None else price.cache_read
    write = price.input if price.cache_write is None else price.cache_write
    total = (
        (usage.input_tokens or 0) * price.input
        + (usage.output_tokens or 0) * price.output
        + (usage.cache_read_tokens or 0) * read
        + (usage.cache_write_tokens or 0) * write
    )
    return total / _MILLION


def _published(model: str, usage: Usage) -> float | None:
    import genai_prices  # a large table: who prices nothing doesn't pay for it

    read, write = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    billed = genai_prices.Usage(
        # the list counts cached tokens as input, too, and prices them apart
        input_tokens=(usage.input_tokens or 0) + read + write,
        cache_read_tokens=read,
        cache_write_tokens=write,
        output_tokens=usage.output_tokens,
    )
    for provider, name in _readings(model):
        try:
            return float(genai_prices.calc_price(billed, name, provider_id=provider).total_price)
        except LookupError:
            continue
    return None


def _readings(model: str) -> Iterator[tuple[str | None, str]]:
    """A model's name as it is, and read as `provider/model` or `provider:model`."""
    yield None, model
    parts = _PREFIX.split(model, maxsplit=1)
    if len(parts) == 2 and all(parts):
        yield parts[0], parts[1]
