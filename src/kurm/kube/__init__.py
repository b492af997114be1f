"""The Kubernetes API: session, watch, cache, queue, lease, apply. Knows nothing of Slurm."""
