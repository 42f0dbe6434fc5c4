"""Patches for HTTP libraries in this process: they pass each exchange to its run and its listeners.

One file a library. It says how a request reads as `Outgoing`, how a reply becomes the library's own response object,
and which of its own exceptions stands for a failure. requests needs no file: it sends through urllib3.
"""
