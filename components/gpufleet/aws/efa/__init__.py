"""Elastic Fabric Adapter (EFA): network interfaces for jobs on many GPUs, and the device plugin that offers them."""
