"""The pull-through cache: references of images, what is registered, and what nodes may do."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from moto.iam.aws_managed_policies import aws_managed_policies_data

from gpufleet.aws import CachedRegistry, EcrImageCache, EcrImageCacheArgs
from gpufleet.aws.ecr.image_cache import node_policy
from gpufleet.aws.ecr.image_cache_args import image_cache_problems
from gpufleet.aws.ecr.references import cached, registry_host
from tests.iam import Request, allowed
from tests.recording import on_aws, recorded

SECRET = "arn:aws:secretsmanager:eu-west-1:111122223333:secret:ecr-pullthroughcache/ghcr-AbCdEf"
ARGS = EcrImageCacheArgs(
    region="eu-west-1",
    account_id="111122223333",
    policy_name="ci-image-cache",
    registries={
        "quay": CachedRegistry(registry="quay.io"),
        "ghcr": CachedRegistry(registry="ghcr.io", credentials_arn=SECRET),
    },
    node_roles=["system", "karpenter"],
)
PREFIXES = {"docker.io": "docker-hub", "ghcr.io": "ghcr", "quay.io": "quay", "registry.k8s.io": "k8s"}
HOST = "111122223333.dkr.ecr.eu-west-1.amazonaws.com"


@pytest.mark.parametrize(
    ("image", "pulled"),
    [
        ("ghcr.io/actions/actions-runner:2.338.0", f"{HOST}/ghcr/actions/actions-runner:2.338.0"),
        ("quay.io/team/tool@sha256:0123", f"{HOST}/quay/team/tool@sha256:0123"),
        ("docker:28-dind", f"{HOST}/docker-hub/library/docker:28-dind"),
        ("rocm/pytorch:latest", f"{HOST}/docker-hub/rocm/pytorch:latest"),
        ("docker.io/library/docker:28", f"{HOST}/docker-hub/library/docker:28"),
        ("index.docker.io/rocm/pytorch", f"{HOST}/docker-hub/rocm/pytorch"),
        ("registry.k8s.io/pause:3.10", f"{HOST}/k8s/pause:3.10"),
        # Not cached: NVIDIA's registry, one of your own, and the cache itself.
        ("nvcr.io/nvidia/cuda:13.0", "nvcr.io/nvidia/cuda:13.0"),
        ("localhost:5000/tool", "localhost:5000/tool"),
        (f"{HOST}/ghcr/actions/actions-runner", f"{HOST}/ghcr/actions/actions-runner"),
    ],
)
def test_images_are_pulled_from_the_cache(image: str, pulled: str) -> None:
    assert cached(image, PREFIXES, HOST) == pulled
    assert cached(image, {}, HOST) == image


def test_chinas_registries_have_their_own_domain() -> None:
    assert registry_host("111122223333", "eu-west-1") == HOST
    assert registry_host("1", "cn-north-1", "aws-cn") == "1.dkr.ecr.cn-north-1.amazonaws.com.cn"


def test_a_rule_and_a_template_for_each_registry() -> None:
    plan = recorded(lambda: EcrImageCache("cache", ARGS, on_aws()))
    made: dict[str, list[Any]] = {}
    for resource in plan.owned():
        made.setdefault(resource.type.rpartition(":")[2], []).append(resource)
    rules = {each.inputs["ecrRepositoryPrefix"]: each.inputs for each in made["PullThroughCacheRule"]}
    assert {prefix: rule["upstreamRegistryUrl"] for prefix, rule in rules.items()} == {
        "quay": "quay.io",
        "ghcr": "ghcr.io",
    }
    assert [rules[prefix].get("credentialArn") for prefix in ("quay", "ghcr")] == [None, SECRET]
    templates = {each.inputs["prefix"]: each for each in made["RepositoryCreationTemplate"]}
    assert templates.keys() == rules.keys()
    for rule in made["PullThroughCacheRule"]:
        # A template applies only to repositories that are created after it.
        assert templates[rule.inputs["ecrRepositoryPrefix"]].urn in rule.depends_on
    for template in templates.values():
        assert template.inputs["appliedFors"] == ["PULL_THROUGH_CACHE"]
        assert json.loads(template.inputs["lifecyclePolicy"])["rules"][0]["selection"]["tagStatus"] == "untagged"
    assert {each.inputs["role"] for each in made["RolePolicyAttachment"]} == {"system", "karpenter"}


def arn(repository: str, account: str = "111122223333", region: str = "eu-west-1") -> str:
    return f"arn:aws:ecr:{region}:{account}:repository/{repository}"


@pytest.mark.parametrize(
    ("action", "resource", "may"),
    [
        ("ecr:GetAuthorizationToken", "*", True),
        ("ecr:BatchGetImage", arn("ghcr/actions/actions-runner"), True),
        ("ecr:GetDownloadUrlForLayer", arn("ghcr/actions/actions-runner"), True),
        ("ecr:BatchImportUpstreamImage", arn("ghcr/actions/actions-runner"), True),
        ("ecr:CreateRepository", arn("ghcr/actions/actions-runner"), True),
        ("ecr:CreateRepository", arn("quay/team/tool"), True),
        ("ecr:CreateRepository", arn("ghcr-2/tool"), False),
        ("ecr:CreateRepository", arn("own/tool"), False),
        ("ecr:CreateRepository", arn("ghcr/tool", account="444455556666"), False),
        ("ecr:CreateRepository", arn("ghcr/tool", region="us-east-1"), False),
        ("ecr:PutImage", arn("ghcr/actions/actions-runner"), False),
        ("ecr:DeleteRepository", arn("ghcr/actions/actions-runner"), False),
        ("ecr:CreatePullThroughCacheRule", "*", False),
    ],
)
def test_what_nodes_may_do(action: str, resource: str, may: bool) -> None:
    """With the managed policy that every node role has."""
    managed: Any = aws_managed_policies_data
    managed = json.loads(managed) if isinstance(managed, str) else managed
    pull_only = managed["AmazonEC2ContainerRegistryPullOnly"]["Document"]
    assert allowed([pull_only, node_policy(ARGS)], Request(action=action, resource=resource)) is may


@pytest.mark.parametrize(
    ("prefix", "registry", "secret", "problem"),
    [
        ("nv", "nvcr.io", None, "registries.nv.registry: ECR does not cache nvcr.io; supported: docker.io, ghcr.io,"),
        ("Quay", "quay.io", None, "registries.Quay: 'Quay' is not a prefix; write 2 to 30 "),
        ("q", "quay.io", None, "registries.q: 'q' is not a prefix;"),
        ("hub", "docker.io", None, "registries.hub.credentials_arn: is missing; docker.io requires credentials, in"),
        (
            "hub",
            "docker.io",
            SECRET.replace("ecr-pullthroughcache/", ""),
            "registries.hub.credentials_arn: is not the ARN of a secret whose name begins with ecr-pullthroughcache/",
        ),
    ],
)
def test_refused(prefix: str, registry: str, secret: str | None, problem: str) -> None:
    args = dataclasses.replace(ARGS, registries={prefix: CachedRegistry(registry=registry, credentials_arn=secret)})
    (found,) = image_cache_problems(args)
    assert str(found).startswith(problem)


def test_a_registry_is_cached_once() -> None:
    both = dict.fromkeys(("quay", "other"), CachedRegistry(registry="quay.io"))
    assert len(list(image_cache_problems(dataclasses.replace(ARGS, registries=both)))) == 2
    assert not list(image_cache_problems(ARGS))
