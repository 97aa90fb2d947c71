"""Rules that involve several settings."""
