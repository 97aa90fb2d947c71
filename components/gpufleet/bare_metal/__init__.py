"""Machines reached over SSH: kubespray clusters, the NVIDIA container toolkit, and preflight checks. Never imports
AWS's SDK."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
