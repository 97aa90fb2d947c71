"""The settings language of stack files: file, models, rules, schema."""
