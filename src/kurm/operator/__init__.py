"""The operator: SlurmClusters and NodeSets become pods, volumes, Services and claims on nodes."""
