"""EC2 instance types, and their selection by a node pool's requirements."""
