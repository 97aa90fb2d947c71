"""Prices of instances are those that the pinned Karpenter is delivered with."""

from __future__ import annotations

import collections
import json
import re

import pytest

from gpufleet.aws.ec2.instance_types import instance_types
from gpufleet.aws.karpenter.versions import KARPENTER_VERSION
from gpufleet_tools.capacity import instance_prices
from gpufleet_tools.capacity.instance_prices import MICRO, TABLE, basis, prices
from tests.conftest import Generated
from tests.karpenter_module import karpenter_file

pytestmark = pytest.mark.process

LIST = "pkg/providers/pricing/zz_generated.pricing_aws.go"


def source() -> str:
    """The list in the Go module."""
    return karpenter_file(LIST).read_text()


def written(text: str) -> str:
    """The whole table, one family a line."""
    found = re.search(r"^// generated at (\S+)T\S+ for (\S+)$", text, re.MULTILINE)
    assert found, f"{LIST} does not say when it was made, and for which region"
    known = instance_types()
    families = collections.defaultdict[str, dict[str, float]](dict)
    for family, size, price in re.findall(r'"([a-z0-9-]+)\.([a-z0-9-]+)": ([0-9.]+)', text):
        if f"{family}.{size}" in known:
            families[family][size] = float(price)
    head = {"region": found[2], "karpenter": KARPENTER_VERSION, "date": found[1]}
    lines = ",\n".join(f"{json.dumps(family)}:{json.dumps(sizes)}" for family, sizes in sorted(families.items()))
    return f'{json.dumps(head)[:-1]},\n"prices":{{\n{lines}\n}}}}\n'


@pytest.mark.generated
def test_the_table_is_karpenters_list(generated: Generated) -> None:
    generated(TABLE, written(source()))


def test_the_list_has_one_region() -> None:
    """Were there two, prices of both would be mixed."""
    assert re.findall(r'^\t"([a-z0-9-]+)": \{$', source(), re.MULTILINE) == [json.loads(TABLE.read_text())["region"]]


def test_it_is_that_of_the_pinned_karpenter() -> None:
    """Also where the module is not there to be asked."""
    assert json.loads(TABLE.read_text())["karpenter"] == KARPENTER_VERSION


@pytest.mark.parametrize(
    ("name", "dollars"),
    [("g4dn.2xlarge", 0.752), ("g5.2xlarge", 1.212), ("m5.large", 0.096), ("c5.metal", 4.08), ("a1.medium", 0.0255)],
)
def test_prices_are_those_that_aws_publishes(name: str, dollars: float) -> None:
    assert prices()[name] == round(dollars * MICRO)


def test_only_types_that_the_instance_table_has() -> None:
    assert prices().keys() < instance_types().keys()
    assert all(price > 0 for price in prices().values())


def test_the_basis_says_region_and_day() -> None:
    assert re.fullmatch(r"us-east-1 on-demand list price of \d{4}-\d\d-\d\d", basis())


def test_it_is_small_enough_to_review() -> None:
    assert instance_prices.TABLE.stat().st_size < 40_000
