"""What a change between two git revisions does to users and resources."""
