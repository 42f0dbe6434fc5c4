"""HTTP between agents, model providers and tools: what passes, and how to observe or change it.

`exchange` is one request with its reply. `formats/` reads and writes what model providers send. Exchanges are caught in
two places: `patches/` replaces the send functions of HTTP libraries in this process, and `proxy/` is a local proxy for
other processes. Both hand each exchange to the `listeners`: a contract run injects faults, a recording writes it down.
"""
