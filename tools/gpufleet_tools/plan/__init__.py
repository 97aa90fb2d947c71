"""A stack's plan: recorded without an engine, shown as a tree, manifests or JSON."""
