"""The guard as a service: one engine behind HTTP, for agents in any language and for people.

- `operations/`: everything that the JSON API and the console can do, as plain Python over a guard and its store
- `records`: what the service adds to the store: rule versions, keys and logins, proposals, claims of reviews
- `rule_versions`: which rules are in force, the same in every worker
- `app`: the Starlette application; `endpoints` declares each path once, for routing, validation and OpenAPI
- `auth`, `oidc`: who asks, and what they may do
- `server`: workers, sockets, TLS, an orderly end
- `client`: `GuardClient` and `AsyncGuardClient`, with the interface of `bylaw.Guard`
"""
