"""Conversion of settings to arguments of components."""
