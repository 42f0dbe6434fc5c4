"""MCP servers behind the proxy: their tools are called by name, so faults hit them by name.

`calls` does to one `tools/call` what its run says, whatever carries it: `http` the streamable HTTP transport, `stdio`
the lines of a server that Bylaw starts, reached through `bridge`, which the agent starts in the server's place.
"""
