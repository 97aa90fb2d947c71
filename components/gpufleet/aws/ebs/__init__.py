"""EBS volumes: performance, and StorageClasses for volume claims."""
