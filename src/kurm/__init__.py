"""Kurm: Slurm on Kubernetes, on one pool of nodes."""

__version__ = "0.1.0.dev0"
