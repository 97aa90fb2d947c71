"""Driver of kubespray, which Pulumi sends to the machine that runs kubespray. Standard library only."""
