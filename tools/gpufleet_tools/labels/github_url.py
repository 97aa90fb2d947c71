"""GitHub URLs of projects: whose jobs their runners serve."""

from __future__ import annotations


def serves(url: str, other: str) -> bool:
    """Return whether runners of one URL serve all jobs of another: an organisation's serve its repositories. Members of
    an enterprise are not known here: its runners may serve any job."""
    url, other = url.rstrip("/").casefold(), other.rstrip("/").casefold()
    return other == url or other.startswith(f"{url}/") or "/enterprises/" in url


def same_users(url: str, other: str) -> bool:
    """Return whether two URLs are those of the same organisation, repository or enterprise."""
    return url.rstrip("/").casefold() == other.rstrip("/").casefold()


def is_repository(url: str) -> bool:
    """Return whether a URL is that of a repository, which has no runner groups of its own."""
    return url.rstrip("/").partition("://")[2].count("/") == 2 and "/enterprises/" not in url
