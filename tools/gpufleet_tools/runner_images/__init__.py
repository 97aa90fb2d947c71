"""Releases of GitHub's runner and images that hold it, looked up over HTTP."""
