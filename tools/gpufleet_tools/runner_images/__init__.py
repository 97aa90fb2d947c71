"""Look-up of GitHub's runner releases, and of files and runner versions in images."""
