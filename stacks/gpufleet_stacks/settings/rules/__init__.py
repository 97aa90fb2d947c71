"""Rules across settings."""
