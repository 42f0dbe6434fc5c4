"""The chaos proxy: between an agent that is no Python object of ours and all it talks to.

`http1` speaks HTTP/1.1 to the agent, `upstream` to the servers, `carry` takes one exchange across and does to it what
its run says, `routes` tells what is asked for, `runs` knows which run a request belongs to, `server` is all of it.
"""
