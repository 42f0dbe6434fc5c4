"""MCP: a proxy between a client and its servers, which decides each call of a tool before a server sees it.

A client talks on standard streams or by HTTP (`listener`); a server is a process or a URL (`http`). Between the two
stands one `McpProxy` for each connection, and a `Router` if there are several servers. `pins` remembers what tools
looked like when they were approved. `servers` reads which servers there are and talks on standard streams, and
`client_config` puts the proxy into the configuration of a client.
"""
