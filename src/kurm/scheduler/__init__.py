"""Pods through Slurm: asks Slurm's queue for nodes, binds pods to what it gives, and gives back what pods have left."""
