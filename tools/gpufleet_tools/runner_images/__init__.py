"""Look-up of GitHub's runner releases and of runner versions in images."""
