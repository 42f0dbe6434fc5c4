"""What must not be written down, found and taken out: the one list of it for the guard, contracts and recordings.

`secrets` are credentials, by their form or by the name they stand under; `personal` is data about people, with what
tells it from a number that only looks like it; `redactor` takes both, and patterns of the user's, out of any value.
"""
