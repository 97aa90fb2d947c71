"""The bucket for states: what is registered, and what S3 and KMS make of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpufleet_tools.plan.plan import Plan, revealed
from gpufleet_tools.plan.recorder import record
from tests.conftest import ROOT
from tests.input_types import wrong_inputs
from tests.recording import the

EXAMPLE = ROOT / "examples" / "state-backend"
CONFIG = {"region": "us-east-1", "account": "111122223333", "bucket": "example-pulumi-state"}


def recording(*, unknown_outputs: bool) -> Plan:
    values = {f"state-backend:{key}": value for key, value in CONFIG.items()}
    return record(EXAMPLE, "state", values, secrets={}, unknown_outputs=unknown_outputs)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return recording(unknown_outputs=True)


def inputs(plan: Plan, kind: str) -> Any:
    return revealed(the(plan, kind).inputs)


def test_inputs_are_what_the_sdk_expects(plan: Plan) -> None:
    assert wrong_inputs(plan) == []


def test_nothing_but_the_bucket_and_the_key_is_made_and_both_are_protected(plan: Plan) -> None:
    assert {resource.type.split(":")[-1] for resource in plan.resources if resource.options.get("protect")} == {
        "Bucket",
        "Key",
    }
    assert {resource.type.split(":")[1].split("/")[0] for resource in plan.resources} == {"kms", "s3", "providers"}


def test_it_is_versioned_encrypted_and_private(plan: Plan) -> None:
    assert inputs(plan, "BucketVersioning")["versioningConfiguration"] == {"status": "Enabled"}
    (rule,) = inputs(plan, "BucketServerSideEncryptionConfiguration")["rules"]
    assert rule["applyServerSideEncryptionByDefault"]["sseAlgorithm"] == "aws:kms"
    block = inputs(plan, "BucketPublicAccessBlock")
    switches = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    assert all(block[switch] is True for switch in switches)
    assert inputs(plan, "Key")["enableKeyRotation"] is True


def test_old_versions_end(plan: Plan) -> None:
    (rule,) = inputs(plan, "BucketLifecycleConfiguration")["rules"]
    assert rule["noncurrentVersionExpiration"] == {"newerNoncurrentVersions": 20, "noncurrentDays": 90}


def test_requests_without_tls_are_denied() -> None:
    policy = inputs(recording(unknown_outputs=False), "BucketPolicy")["policy"]
    (statement,) = json.loads(policy)["Statement"]
    assert (statement["Effect"], statement["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})


def test_the_readme_says_the_commands_that_the_program_exports(plan: Plan) -> None:
    text = (EXAMPLE / "README.md").read_text()
    assert plan.exports["login"] in text
    assert plan.exports["secretsProvider"] in text
