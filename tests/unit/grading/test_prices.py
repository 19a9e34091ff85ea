"""Cost from usage: cached tokens at their own price and once, and unknown never 0."""

from __future__ import annotations

import subprocess
import sys

import pytest

from evalfleet.grading.prices import PriceList
from evalfleet.model.experiment import Price
from evalfleet.model.usage import Usage

#: US dollars per million tokens.
SONNET = Price(input=3.0, output=15.0, cache_read=0.30, cache_write=3.75)
CACHED = Usage(input_tokens=5, cache_write_tokens=10_000, cache_read_tokens=40_000, output_tokens=300)


@pytest.mark.parametrize(
    ("own", "model"),
    [
        ({"mine": SONNET}, "mine"),
        ({}, "claude-sonnet-4-5"),
        ({}, "anthropic/claude-sonnet-4-5"),
        ({}, "anthropic:claude-sonnet-4-5-20250929"),
    ],
)
def test_cache_reads_and_writes_have_their_own_price_and_are_no_input_again(own: dict[str, Price], model: str) -> None:
    assert PriceList(own)(model, CACHED) == pytest.approx(0.054015, abs=1e-9)


def test_a_cached_token_without_a_price_costs_what_an_input_token_does() -> None:
    price = Price(input=2.0, output=0.0)
    usage = Usage(input_tokens=1, cache_read_tokens=1, cache_write_tokens=1, output_tokens=0)
    assert PriceList({"m": price})("m", usage) == pytest.approx(6e-6)


def test_a_price_of_ones_own_goes_before_the_kept_list() -> None:
    usage = Usage(input_tokens=1_000_000, output_tokens=0)
    assert PriceList({"gpt-5-mini": Price(input=9.0, output=0.0)})("gpt-5-mini", usage) == 9.0


def test_a_model_that_is_free_costs_a_real_zero() -> None:
    free = PriceList({"local": Price(input=0.0, output=0.0)})
    assert free("local", Usage(input_tokens=10, output_tokens=10)) == 0.0


@pytest.mark.parametrize(
    ("model", "usage"),
    [
        (None, CACHED),
        ("a-model-that-nobody-sells", CACHED),
        ("nobody/a-model-that-nobody-sells", CACHED),
        ("/", CACHED),
        ("claude-sonnet-4-5", Usage()),
        ("claude-sonnet-4-5", Usage(input_tokens=5)),
        ("claude-sonnet-4-5", Usage(output_tokens=5)),
        ("claude-sonnet-4-5", Usage(input_tokens=5, output_tokens=5, unknown_calls=1)),
    ],
)
def test_what_is_not_known_has_no_price(model: str | None, usage: Usage) -> None:
    assert PriceList({})(model, usage) is None


def test_the_kept_list_is_loaded_only_when_something_is_priced_by_it() -> None:
    script = (
        "import sys\n"
        "from evalfleet.grading.prices import PriceList\n"
        "from evalfleet.model.experiment import Price\n"
        "own = PriceList({'mine': Price(input=1, output=1)})\n"
        "own.load([None, 'mine'])\n"
        "assert 'genai_prices' not in sys.modules\n"
        "own.load(['gpt-5-mini'])\n"
        "assert 'genai_prices' in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
