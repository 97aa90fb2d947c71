"""Rules that every program has to keep, whoever wrote it."""
