"""An agent that lives in this process: a Python function or object, found by `module:attribute`."""
