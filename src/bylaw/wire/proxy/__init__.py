"""A local proxy for processes that are not this one.

`http1` speaks HTTP/1.1 with the client and reads what it asks for, `upstream` speaks it with the servers,
`child_environment` leads a program to the proxy and signs certificates, `server` connects them. What happens to an
exchange is decided by a subclass of `server.Proxy`.
"""
