"""The Slurm API: REST session, models, host lists, config files, tokens. Knows nothing of Kubernetes."""
