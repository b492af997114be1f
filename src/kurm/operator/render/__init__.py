"""From a SlurmCluster and its NodeSets to Kubernetes objects and Slurm's configuration: pure, no IO, no clock.

Manifests are whole and ready for server-side apply: what is not named in them is not ours. `cluster.objects` gives all
of a cluster but its keys (`keys`, made once) and its compute nodes (`slurmd`, one pod each).
"""
