"""Quantities are what Kubernetes says they are, and shown so that they can be requested."""

from __future__ import annotations

import itertools
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from gpufleet import quantity
from tests.conftest import examples

quick = settings(max_examples=examples(100), derandomize=True, deadline=None)

NUMBERS = st.decimals(min_value=0, max_value=10**9, places=3).map(lambda number: f"{number:f}")
SUFFIXES = ["m", "", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]


@given(st.from_regex(quantity.PATTERN, fullmatch=True).filter(lambda text: len(text) < 18 and text.isascii()))
def test_they_are_worth_what_the_client_says(text: str) -> None:
    """Kubernetes' own client is the oracle; it reads no exponents."""
    if "e" in text or ("E" in text and not text.endswith(("E", "Ei"))):
        assert quantity.parsed(text) == Decimal(text)
    else:
        assert quantity.parsed(text) == parse_quantity(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("40000m", 40),
        ("0.5", Decimal("0.5")),
        ("1k", 1000),
        ("100G", 100 * 10**9),
        ("1Ki", 1024),
        ("450000Mi", 450000 * 2**20),
        ("1Ei", 2**60),
    ],
)
def test_what_a_quantity_is_worth(text: str, value: Decimal) -> None:
    assert quantity.parsed(text) == value


@pytest.mark.parametrize(
    "text",
    ["", " 1", "1 ", "1\n", "-1", "+1", ".5", "1K", "1GB", "1gi", "1Gi1", "nan", "٣", "1,5", "0x10", "1e", "1E1000000"],
)
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="is no quantity"):
        quantity.parsed(text)


@quick
@given(NUMBERS, st.sampled_from(SUFFIXES))
def test_a_suffix_multiplies(number: str, suffix: str) -> None:
    assert quantity.parsed(number + suffix) == Decimal(number) * quantity.parsed(f"1{suffix}")


@quick
@given(NUMBERS)
def test_a_thousand_of_one_suffix_is_one_of_the_next(number: str) -> None:
    for steps, factor in ((SUFFIXES[:8], 1000), (["", *SUFFIXES[8:]], 1024)):
        for small, large in itertools.pairwise(steps):
            assert quantity.parsed(number + large) == quantity.parsed(number + small) * factor


@quick
@given(st.text(max_size=8))
def test_text_is_a_quantity_or_refused(text: str) -> None:
    try:
        assert quantity.parsed(text) >= 0
    except ValueError as error:
        assert repr(text) in str(error)  # noqa: PT017  (either outcome will do, but no other error)


@quick
@given(st.decimals(min_value=0, max_value=10**15, places=6))
def test_what_is_shown_is_free_when_it_is_asked_for(number: Decimal) -> None:
    """Shown values are rounded down, by less than their last place."""
    cores, size = quantity.parsed(quantity.cores(number)), quantity.parsed(quantity.gibibytes(number))
    assert number - Decimal("0.001") < cores <= number
    assert number - 1024**3 / Decimal(10) < size <= number


@pytest.mark.parametrize(
    ("cores", "shown"), [("0", "0"), ("10", "10"), ("47.5", "47.5"), ("63.33333", "63.333"), ("100", "100")]
)
def test_cores_are_shown_without_trailing_zeros(cores: str, shown: str) -> None:
    assert quantity.cores(Decimal(cores)) == shown


@pytest.mark.parametrize(
    ("size", "shown"), [("1Gi", "1Gi"), ("450000Mi", "439.4Gi"), ("100G", "93.1Gi"), ("10Gi", "10Gi")]
)
def test_memory_is_shown_in_gibibytes(size: str, shown: str) -> None:
    assert quantity.gibibytes(quantity.parsed(size)) == shown


def test_amounts_of_any_length_are_shown() -> None:
    """Decimal's own rounding fails beyond 28 digits."""
    assert quantity.cores(quantity.parsed("9" * 60)).isdecimal()
    assert quantity.gibibytes(quantity.parsed("9" * 60 + "Ei")).endswith("Gi")


def test_memory_in_mebibytes_is_rounded_down() -> None:
    assert quantity.mebibytes(Decimal(1024**2 * 3 - 1)) == "2Mi"
