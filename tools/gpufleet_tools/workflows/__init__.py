"""GitHub workflows, checked against the catalogue of labels."""
