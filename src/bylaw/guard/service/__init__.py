"""The guard as a service: one engine behind HTTP, for agents in any language and for people.

- `operations/`: everything that the JSON API and the console can do, as plain Python over a guard and its store
- `rule_versions`: which rules are in force, the same in every worker
- `api/`: each path of the JSON API, declared once for routing, validation and OpenAPI; `console/`: pages for people
- `app`: the configuration, and the Starlette application of one worker; `gate` stands before every request
- `auth`, `sign_in`: who asks, what they may do, and how often
- `server`: workers, sockets, TLS, an orderly end
- `client`: `GuardClient` and `AsyncGuardClient`, with the interface of `bylaw.Guard`
"""
