"""Judgement of a snapshot: functions from a view to findings, without requests."""
