"""An example to try Bylaw on: a refund agent, recorded in two versions.

`files/` holds the one copy of the example: rules, recordings, a prompt, a contract and its agent. `bylaw demo` writes
them into a folder of the user, so that they are at hand after `pip install`; `make demo`, the pages and the tests use
the same files.
"""
