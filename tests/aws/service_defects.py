"""Defects of what Karpenter listens to, of ECR's cache, and of keys, logs and buckets."""

from __future__ import annotations

from tests.aws.defect import Defect, given, written

SERVICE_DEFECTS = [
    # -- queue and events ---------------------------------------------------------------------------------------------
    Defect(
        "a message forgotten too soon",
        "Queue",
        "karpenter-interruption",
        given("messageRetentionSeconds", 30),
        ("CloudFormation", "rules"),
    ),
    Defect(
        "seconds as text", "Queue", "karpenter-interruption", given("messageRetentionSeconds", "300"), ("SDK", "rules")
    ),
    Defect(
        "a queue's name with a dot", "Queue", "karpenter-interruption", given("name", "c.i"), ("verdicts", "account")
    ),
    Defect(
        "a queue of another name than its policy knows",
        "Queue",
        "karpenter-interruption",
        given("name", "other"),
        ("verdicts",),
    ),
    Defect("no policy of the queue", "QueuePolicy", "karpenter-interruption-policy", None, ("verdicts",)),
    Defect(
        "another service may send",
        "QueuePolicy",
        "karpenter-interruption-policy",
        written("policy", "events.amazonaws.com", "event.amazonaws.com"),
        ("verdicts",),
    ),
    Defect(
        "everybody may send",
        "QueuePolicy",
        "karpenter-interruption-policy",
        written("policy", '{"Service":["events.amazonaws.com","sqs.amazonaws.com"]}', '"*"'),
        ("verdicts",),
    ),
    Defect(
        "a pattern that is no JSON",
        "EventRule",
        "karpenter-rebalance",
        written("eventPattern", "]}", "]"),
        ("account",),
    ),
    Defect(
        "a source that sends nothing",
        "EventRule",
        "karpenter-rebalance",
        written("eventPattern", "aws.ec2", "ec2"),
        ("account",),
    ),
    Defect(
        "a key that events have not",
        "EventRule",
        "karpenter-spot-interruption",
        written("eventPattern", "detail-type", "detailType"),
        ("account",),
    ),
    Defect(
        "a pattern that is not one of lists",
        "EventRule",
        "karpenter-rebalance",
        given("eventPattern", '{"source":"aws.ec2"}'),
        ("account",),
    ),
    Defect(
        "a rule that takes everything of EC2",
        "EventRule",
        "karpenter-rebalance",
        given("eventPattern", '{"source":["aws.ec2"]}'),
        ("account",),
    ),
    Defect(
        "a description too long",
        "EventRule",
        "karpenter-rebalance",
        given("description", "d" * 600),
        ("API", "CloudFormation"),
    ),
    Defect(
        "a queue by its URL",
        "EventTarget",
        "karpenter-rebalance-target",
        given("arn", "<<Queue.karpenter-interruption:url>>"),
        ("rules", "verdicts", "account"),
    ),
    Defect("a rule without a target", "EventTarget", "karpenter-rebalance-target", None, ("account",)),
    # -- ECR's cache --------------------------------------------------------------------------------------------------
    Defect(
        "a prefix in capitals",
        "PullThroughCacheRule",
        "image-cache-quay",
        given("ecrRepositoryPrefix", "Quay"),
        ("API", "CloudFormation"),
    ),
    Defect(
        "a secret by its name",
        "PullThroughCacheRule",
        "image-cache-ghcr",
        given("credentialArn", "ecr-pullthroughcache/ghcr"),
        ("API", "CloudFormation", "rules"),
    ),
    Defect(
        "a registry that ECR does not cache",
        "PullThroughCacheRule",
        "image-cache-quay",
        given("upstreamRegistryUrl", "nvcr.io"),
        (),
    ),
    Defect(
        "repositories for something else",
        "RepositoryCreationTemplate",
        "image-cache-quay-repositories",
        given("appliedFors", ["PULL_THROUGH"]),
        ("API", "CloudFormation"),
    ),
    Defect(
        "tags that may and may not move",
        "RepositoryCreationTemplate",
        "image-cache-quay-repositories",
        given("imageTagMutability", "SOMETIMES"),
        ("API", "CloudFormation"),
    ),
    # -- keys, logs and buckets ---------------------------------------------------------------------------------------
    Defect("a key gone too soon", "Key", "secrets", given("deletionWindowInDays", 3), ("CloudFormation",)),
    Defect("a use that there is not", "Key", "secrets", given("keyUsage", "ENCRYPT"), ("API", "CloudFormation")),
    Defect("an alias without its prefix", "Alias", "secrets", given("name", "ci"), ("CloudFormation",)),
    Defect(
        "days that CloudWatch does not offer",
        "LogGroup",
        "control-plane",
        given("retentionInDays", 31),
        ("CloudFormation",),
    ),
    Defect(
        "a log of another name than EKS writes to",
        "LogGroup",
        "control-plane",
        given("name", "/aws/eks/co/cluster"),
        (),
    ),
    Defect("a bucket in capitals", "Bucket", "cache", given("bucket", "CI-cache"), ("CloudFormation",)),
    Defect(
        "versions by another word",
        "BucketVersioning",
        "cache",
        given("versioningConfiguration.status", "On"),
        ("API", "CloudFormation"),
    ),
    Defect(
        "a switch as text",
        "BucketPublicAccessBlock",
        "cache",
        given("blockPublicAcls", "yes"),
        ("SDK", "API", "CloudFormation"),
    ),
    Defect(
        "a cipher that there is not",
        "BucketServerSideEncryptionConfiguration",
        "cache",
        given("rules.0.applyServerSideEncryptionByDefault.sseAlgorithm", "AES"),
        ("API", "CloudFormation"),
    ),
]
