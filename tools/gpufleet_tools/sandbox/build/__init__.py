"""The sandbox's programs, built from pinned Go modules."""
