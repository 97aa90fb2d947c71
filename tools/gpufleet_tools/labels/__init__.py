"""The catalogue of runner labels."""
