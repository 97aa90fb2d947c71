"""EBS volumes: their performance, and StorageClasses for claims."""
