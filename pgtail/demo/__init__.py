"""The embedded server and its workload."""
