"""The environment of jobs: their pods, and the node pools that they run on."""
