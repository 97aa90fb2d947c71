"""Quantities are what Kubernetes says they are."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from gpufleet.quantity import PATTERN, cores, mebibytes, parsed


@given(st.from_regex(PATTERN, fullmatch=True).filter(lambda text: len(text) < 18 and text.isascii()))
def test_they_are_worth_what_the_client_says(text: str) -> None:
    """Kubernetes' own client is the oracle; it reads no exponents."""
    if "e" in text or ("E" in text and not text.endswith(("E", "Ei"))):
        assert parsed(text) == Decimal(text)
    else:
        assert parsed(text) == parse_quantity(text)


@pytest.mark.parametrize("text", ["", "-1", "1 Gi", "1GB", "Gi", "1e", "one", "1E1000000"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is no quantity"):
        parsed(text)


@pytest.mark.parametrize(("amount", "shown"), [("7.91", "7910m"), ("8", "8"), ("0.5", "500m")])
def test_cores_for_people(amount: str, shown: str) -> None:
    assert cores(Decimal(amount)) == shown


def test_bytes_for_people() -> None:
    assert mebibytes(Decimal(1024**2 * 3 - 1)) == "2Mi"
