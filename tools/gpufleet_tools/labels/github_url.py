"""GitHub URLs of projects: whose jobs their runners serve."""

from __future__ import annotations


def serves(url: str, other: str) -> bool:
    """Return whether runners of one URL serve all jobs of another: an organisation's serve its repositories. Members of
    an enterprise are not known here: its runners may serve any job."""
    url, other = url.rstrip("/").casefold(), other.rstrip("/").casefold()
    return other == url or other.startswith(f"{url}/") or "/enterprises/" in url
