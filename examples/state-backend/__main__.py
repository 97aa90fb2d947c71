"""Storage for the state of Pulumi stacks: a versioned, encrypted, private S3 bucket, and a KMS key for secrets.

Pulumi's S3 backend locks a stack with an object in the bucket, so no table is needed.
"""

import json

import pulumi
import pulumi_aws as aws

config = pulumi.Config()
name = config.require("bucket")
account = aws.Provider("account", region=config.require("region"), allowed_account_ids=[config.require("account")])


def options(*needs: pulumi.Resource, protect: bool = False) -> pulumi.ResourceOptions:
    """Return the options of a resource."""
    return pulumi.ResourceOptions(provider=account, depends_on=[*needs], protect=protect)


# Without the key, the secrets of all stacks are lost; without the bucket, the state of all stacks is lost.
key = aws.kms.Key(
    "secrets",
    description="Secrets and state of Pulumi's stacks",
    enable_key_rotation=True,
    deletion_window_in_days=30,
    opts=options(protect=True),
)
alias = aws.kms.Alias("secrets", name=f"alias/{name}", target_key_id=key.key_id, opts=options())
bucket = aws.s3.Bucket("state", bucket=name, opts=options(protect=True))
private = aws.s3.BucketPublicAccessBlock(
    "state",
    bucket=bucket.id,
    block_public_acls=True,
    block_public_policy=True,
    ignore_public_acls=True,
    restrict_public_buckets=True,
    opts=options(),
)
aws.s3.BucketOwnershipControls(
    "state", bucket=bucket.id, rule={"object_ownership": "BucketOwnerEnforced"}, opts=options()
)
versions = aws.s3.BucketVersioning(
    "state", bucket=bucket.id, versioning_configuration={"status": "Enabled"}, opts=options()
)
aws.s3.BucketServerSideEncryptionConfiguration(
    "state",
    bucket=bucket.id,
    rules=[
        {
            "apply_server_side_encryption_by_default": {"sse_algorithm": "aws:kms", "kms_master_key_id": key.arn},
            "bucket_key_enabled": True,
        }
    ],
    opts=options(),
)
# Every update writes the whole state, so old versions are deleted after a while.
aws.s3.BucketLifecycleConfiguration(
    "state",
    bucket=bucket.id,
    rules=[
        {
            "id": "old-versions",
            "status": "Enabled",
            "filter": {"prefix": ""},
            "noncurrent_version_expiration": {"noncurrent_days": 90, "newer_noncurrent_versions": 20},
            "abort_incomplete_multipart_upload": {"days_after_initiation": 7},
        }
    ],
    opts=options(versions),
)
aws.s3.BucketPolicy(
    "state",
    bucket=bucket.id,
    policy=bucket.arn.apply(
        lambda arn: json.dumps(
            {
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Sid": "OnlyOverTls",
                        "Effect": "Deny",
                        "Principal": "*",
                        "Action": "s3:*",
                        "Resource": [arn, f"{arn}/*"],
                        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
                    }
                ],
            }
        )
    ),
    opts=options(private),
)

region = config.require("region")
pulumi.export("login", f"pulumi login 's3://{name}?region={region}&awssdk=v2'")
pulumi.export("secretsProvider", f"awskms://alias/{name}?region={region}")
