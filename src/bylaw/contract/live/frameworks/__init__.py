"""Agent frameworks inside the process: their tools by name, and their model calls, whatever carries these.

A model call of a framework is put into a wire format and passes the same interceptor as one over HTTP, so that a fault
is written once; only what comes back is turned into the framework's own objects and errors. Models that speak the wire
of OpenAI or Anthropic over HTTP are left to the HTTP patches, where their client's own retries are tried as well.
"""
