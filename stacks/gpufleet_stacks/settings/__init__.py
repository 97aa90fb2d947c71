"""Settings of stack files: parsing, models, rules and schema."""
