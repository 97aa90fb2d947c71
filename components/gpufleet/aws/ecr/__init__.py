"""Amazon ECR: pull-through cache for images of other registries."""
