"""Pull-through cache: images of other registries, kept in the account's own ECR registry."""

from __future__ import annotations

import json
from typing import Any

import pulumi
from pulumi_aws.ecr import PullThroughCacheRule, RepositoryCreationTemplate
from pulumi_aws.iam import Policy, RolePolicyAttachment

from gpufleet.aws.ecr.image_cache_args import EcrImageCacheArgs, image_cache_problems
from gpufleet.aws.ecr.references import REGISTRIES, registry_host
from gpufleet.aws.karpenter.policies import allow, as_text, policy_document
from gpufleet.problem import refuse


class EcrImageCache(pulumi.ComponentResource):
    """Rules of ECR's pull-through cache, with a template for the repositories that it creates.

    Owns the rules and templates, not the repositories: those remain when the cache is deleted.
    """

    ready: pulumi.Resource
    """The cache; depend on it to wait until nodes can pull through it."""

    def __init__(self, name: str, args: EcrImageCacheArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        refuse(name, image_cache_problems(args))
        super().__init__("gpu-runners:index:EcrImageCache", name, None, opts)
        for prefix, cached in args.registries.items():
            template = self._template(name, args, prefix)
            PullThroughCacheRule(
                f"{name}-{prefix}",
                ecr_repository_prefix=prefix,
                upstream_registry_url=REGISTRIES[cached.registry].url,
                credential_arn=cached.credentials_arn,
                # The template applies to repositories that are created after it.
                opts=pulumi.ResourceOptions(parent=self, depends_on=[template]),
            )
        self._permission(name, args)
        self.ready = self
        self.register_outputs({"host": registry_host(args.account_id, args.region, args.partition)})

    def _template(self, name: str, args: EcrImageCacheArgs, prefix: str) -> RepositoryCreationTemplate:
        return RepositoryCreationTemplate(
            f"{name}-{prefix}-repositories",
            prefix=prefix,
            description="Repositories of the pull-through cache",
            applied_fors=["PULL_THROUGH_CACHE"],
            # The cache updates tags that move at their source.
            image_tag_mutability="MUTABLE",
            lifecycle_policy=lifecycle_policy(args.expire_untagged_days),
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _permission(self, name: str, args: EcrImageCacheArgs) -> None:
        """Let nodes create the repository of an image that is pulled for the first time."""
        policy = Policy(
            f"{name}-nodes",
            name=args.policy_name,
            policy=as_text(node_policy(args)),
            tags=dict(args.tags),
            opts=pulumi.ResourceOptions(parent=self),
        )
        for role in args.node_roles:
            RolePolicyAttachment(
                f"{name}-nodes-{role}",
                role=role,
                policy_arn=policy.arn,
                opts=pulumi.ResourceOptions(parent=self, depends_on=[*args.needs]),
            )


def node_policy(args: EcrImageCacheArgs) -> dict[str, Any]:
    """Return the policy to create repositories below the cache's prefixes. The managed policy of nodes,
    `AmazonEC2ContainerRegistryPullOnly`, allows the rest, including `ecr:BatchImportUpstreamImage`
    (https://docs.aws.amazon.com/AmazonECR/latest/userguide/pull-through-cache-iam.html)."""
    registry = f"arn:{args.partition}:ecr:{args.region}:{args.account_id}:repository"
    repositories = [f"{registry}/{prefix}/*" for prefix in args.registries]
    return policy_document(allow("AllowCachedRepositories", "ecr:CreateRepository", repositories))


def lifecycle_policy(days: int) -> str:
    """Return the policy that deletes untagged images of a repository."""
    rule = {
        "rulePriority": 1,
        "description": "Images that a tag left",
        "selection": {
            "tagStatus": "untagged",
            "countType": "sinceImagePushed",
            "countUnit": "days",
            "countNumber": days,
        },
        "action": {"type": "expire"},
    }
    return json.dumps({"rules": [rule]})
