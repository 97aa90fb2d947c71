"""What can be said of a fleet without deploying it."""
