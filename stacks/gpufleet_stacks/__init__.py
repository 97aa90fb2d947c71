"""One program for every environment: a stack file's settings, turned into components."""
