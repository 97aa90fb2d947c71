"""The program that runs kubespray. It is sent to the machine where kubespray runs: standard library only."""
