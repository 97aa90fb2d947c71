"""What Karpenter does with a NodeOverlay's capacity: its CRD and its code say opposite things.

The CRD: capacity "adds extended resources only, and does not replace any existing resources". The code: it replaces
`nvidia.com/gpu`, which every instance type with GPUs has, and GPU sharing depends on that. If a test here fails after a
new version of Karpenter, look at `overlay_name` and `node_overlay_specs` before anything else: with the CRD's words
come true, a pool that shares GPUs provisions a whole GPU for each pod. What the real controller does is in
tests/tools/sandbox/test_pools.py.
"""

from __future__ import annotations

import re

import pytest

from gpufleet.aws.karpenter._node_pool_specs import node_overlay_specs
from gpufleet.nvidia.sharing import GPU
from tests.karpenter_module import CORE, karpenter_file
from tests.node_pools import DOCUMENT_004

CLAIM = "Capacity adds extended resources only, and does not replace any existing resources."


@pytest.mark.process
def test_the_crd_still_says_that_nothing_is_replaced() -> None:
    """If it no longer does, its words have caught up with the code, and this file can go."""
    assert CLAIM in karpenter_file("pkg/apis/crds/karpenter.sh_nodeoverlays.yaml").read_text()


@pytest.mark.process
def test_the_code_still_replaces_what_an_overlay_names() -> None:
    """`lo.Assign` takes the value of the last map."""
    source = karpenter_file("pkg/cloudprovider/types.go", CORE).read_text()
    found = re.search(r"func \(i \*InstanceType\) ApplyCapacityOverlay\(updated\w*.*?\n}", source, re.S)
    assert found
    assert "i.Capacity = lo.Assign(i.Capacity, updatedCapacity)" in found[0]


def test_the_overlays_of_a_pool_name_the_resource_that_types_already_have() -> None:
    """So that they depend on the code, and not on the CRD's words."""
    specs = node_overlay_specs(DOCUMENT_004["nvdia-gpu"])
    assert specs
    assert {name for spec in specs.values() for name in spec["capacity"]} == {GPU}
