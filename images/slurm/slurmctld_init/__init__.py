"""The init of slurmctld's container; `init` says what it does. Python's standard library is all that its image has."""
