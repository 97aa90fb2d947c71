"""How types of SQS, EventBridge, KMS, CloudWatch, ECR and S3 are said to their APIs and to CloudFormation."""

from __future__ import annotations

from collections.abc import Mapping

from tests.aws.resource_type import ACCOUNT, REGION, Part, ResourceType


def _of_bucket(call: str, places: Mapping[str, str], template: Mapping[str, str]) -> ResourceType:
    return ResourceType(
        calls=(Part(of=f"s3.{call}", places={"bucket": "Bucket", **places}),),
        template=(Part(of="AWS::S3::Bucket", into=("Bucket", "bucket", "bucket"), places=template),),
        outputs={"id": "{name}"},
    )


_BLOCKS = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
_QUEUE = {
    "messageRetentionSeconds": "MessageRetentionPeriod",
    "visibilityTimeoutSeconds": "VisibilityTimeout",
    "receiveWaitTimeSeconds": "ReceiveMessageWaitTimeSeconds",
    "maxMessageSize": "MaximumMessageSize",
    "name": "QueueName",
}
_ATTRIBUTES = {
    **{key: f"Attributes.{place}" for key, place in _QUEUE.items()},
    **{
        key: f"Attributes.{key[0].upper()}{key[1:]}"
        for key in ("delaySeconds", "fifoQueue", "kmsMasterKeyId", "policy", "redrivePolicy", "sqsManagedSseEnabled")
    },
    "name": "QueueName",
}

SERVICE_TYPES: dict[str, ResourceType] = {
    # -- queue and events ---------------------------------------------------------------------------------------------
    "aws:sqs/queue:Queue": ResourceType(
        calls=(Part(of="sqs.CreateQueue", places=_ATTRIBUTES),),
        template=(Part(of="AWS::SQS::Queue", places=_QUEUE),),
        named="name",
        outputs={
            "id": f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{{name}}",
            "url": f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{{name}}",
            "arn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:{{name}}",
        },
        attributes={"id": "QueueUrl", "url": "QueueUrl", "arn": "Arn"},
        answers={"url": "QueueUrl", "id": "QueueUrl"},
    ),
    "aws:sqs/queuePolicy:QueuePolicy": ResourceType(
        calls=(Part(of="sqs.SetQueueAttributes", places={"policy": "Attributes.Policy"}),),
        template=(Part(of="AWS::SQS::QueuePolicy", places={"policy": "PolicyDocument", "queueUrl": "Queues"}),),
        outputs={"id": "{name}"},
    ),
    "aws:cloudwatch/eventRule:EventRule": ResourceType(
        calls=(Part(of="events.PutRule"),),
        template=(Part(of="AWS::Events::Rule"),),
        named="name",
        outputs={"id": "{name}", "arn": f"arn:aws:events:{REGION}:{ACCOUNT}:rule/{{name}}"},
        attributes={"id": "Ref", "name": "Ref", "arn": "Arn"},
        provider=frozenset({"forceDestroy", "isEnabled"}),
    ),
    "aws:cloudwatch/eventTarget:EventTarget": ResourceType(
        calls=(Part(of="events.PutTargets", within="Targets", places={"targetId": "Targets.Id"}),),
        template=(
            Part(
                of="AWS::Events::Rule",
                into=("EventRule", "rule", "name"),
                within="Targets",
                places={"targetId": "Targets.Id", "rule": "", "arn": "Targets.Arn", "roleArn": "Targets.RoleArn"},
            ),
        ),
        named="targetId",
        outputs={"id": "{name}"},
        provider=frozenset({"forceDestroy"}),
    ),
    # -- keys and logs ------------------------------------------------------------------------------------------------
    "aws:kms/key:Key": ResourceType(
        calls=(
            Part(of="kms.CreateKey"),
            Part(
                of="kms.EnableKeyRotation",
                when="enableKeyRotation",
                places={"id": "KeyId"},
            ),
        ),
        template=(
            Part(
                of="AWS::KMS::Key",
                places={"policy": "KeyPolicy", "deletionWindowInDays": "PendingWindowInDays"},
            ),
        ),
        outputs={"id": "{uuid}", "keyId": "{uuid}", "arn": f"arn:aws:kms:{REGION}:{ACCOUNT}:key/{{uuid}}"},
        attributes={"id": "Ref", "keyId": "Ref", "arn": "Arn"},
        answers={"id": "KeyMetadata.KeyId", "keyId": "KeyMetadata.KeyId", "arn": "KeyMetadata.Arn"},
        # Said when the key is deleted, and by which call rotation is switched on.
        provider=frozenset({"deletionWindowInDays", "enableKeyRotation", "isEnabled"}),
    ),
    "aws:kms/alias:Alias": ResourceType(
        calls=(Part(of="kms.CreateAlias", places={"name": "AliasName"}),),
        template=(Part(of="AWS::KMS::Alias", places={"name": "AliasName"}),),
        named="name",
        outputs={"id": "{name}", "arn": f"arn:aws:kms:{REGION}:{ACCOUNT}:{{name}}"},
        attributes={"id": "Ref", "name": "Ref"},
    ),
    "aws:cloudwatch/logGroup:LogGroup": ResourceType(
        calls=(
            Part(of="logs.CreateLogGroup", places={"name": "logGroupName"}),
            Part(of="logs.PutRetentionPolicy", when="retentionInDays", places={"name": "logGroupName"}),
        ),
        template=(Part(of="AWS::Logs::LogGroup", places={"name": "LogGroupName"}),),
        named="name",
        outputs={"id": "{name}", "arn": f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{{name}}"},
        attributes={"id": "Ref", "name": "Ref", "arn": "Arn"},
        provider=frozenset({"skipDestroy"}),
    ),
    # -- ECR's cache, which moto does not have ------------------------------------------------------------------------
    "aws:ecr/pullThroughCacheRule:PullThroughCacheRule": ResourceType(
        calls=(Part(of="ecr.CreatePullThroughCacheRule"),),
        template=(Part(of="AWS::ECR::PullThroughCacheRule"),),
        outputs={"id": "{name}"},
        attributes={"id": "Ref"},
    ),
    "aws:ecr/repositoryCreationTemplate:RepositoryCreationTemplate": ResourceType(
        calls=(Part(of="ecr.CreateRepositoryCreationTemplate"),),
        template=(Part(of="AWS::ECR::RepositoryCreationTemplate"),),
        outputs={"id": "{name}"},
        attributes={"id": "Ref"},
    ),
    # -- S3 -----------------------------------------------------------------------------------------------------------
    "aws:s3/bucket:Bucket": ResourceType(
        calls=(Part(of="s3.CreateBucket", places={"bucket": "Bucket"}),),
        template=(Part(of="AWS::S3::Bucket", places={"bucket": "BucketName"}),),
        named="bucket",
        outputs={"id": "{name}", "arn": "arn:aws:s3:::{name}"},
        attributes={"id": "Ref", "bucket": "Ref", "arn": "Arn"},
        provider=frozenset({"forceDestroy", "tags"}),
    ),
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": _of_bucket(
        "PutPublicAccessBlock",
        {key: f"PublicAccessBlockConfiguration.{key[0].upper()}{key[1:]}" for key in _BLOCKS},
        {"bucket": "", **{key: f"PublicAccessBlockConfiguration.{key[0].upper()}{key[1:]}" for key in _BLOCKS}},
    ),
    "aws:s3/bucketVersioning:BucketVersioning": _of_bucket("PutBucketVersioning", {}, {"bucket": ""}),
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": _of_bucket(
        "PutBucketEncryption",
        {"rules": "ServerSideEncryptionConfiguration.Rules"},
        {"bucket": "", "rules": "BucketEncryption.ServerSideEncryptionConfiguration"},
    ),
    "aws:s3/bucketPolicy:BucketPolicy": ResourceType(
        calls=(Part(of="s3.PutBucketPolicy"),),
        template=(Part(of="AWS::S3::BucketPolicy", places={"policy": "PolicyDocument"}),),
        outputs={"id": "{name}"},
    ),
}
