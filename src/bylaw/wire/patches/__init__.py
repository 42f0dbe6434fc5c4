"""HTTP libraries inside the agent's process, made to pass their exchanges through the run's interceptor.

One file a library: how its request reads as `Outgoing`, how a reply becomes its own response object, and which of its
own exceptions says that nothing came. requests has none: it sends through urllib3, whose faults it turns into its own.
"""
