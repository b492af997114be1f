"""A real Kubernetes cluster on one machine: `kurm local`."""
