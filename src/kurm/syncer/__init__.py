"""The syncer, one for each SlurmCluster: has Slurm's node records, slurmd's pods and Kubernetes' nodes agree."""
