"""The workloads. Each is a function of one round that yields its figures as they are measured."""
