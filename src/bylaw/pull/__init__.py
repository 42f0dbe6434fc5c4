"""The job `pull`: copy recorded traces from an observability service to a file that the other jobs read.

A `Source` lists the ids of traces, the newest first, and then fetches whole traces: a trace of which a page held only a
part would break rules that the agent kept. Nothing is ever written to a service.
"""
