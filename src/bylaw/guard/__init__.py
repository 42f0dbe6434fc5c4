"""guard: may this tool call run, right now?

- `guard`: the `Guard` class that applications use
- `decide/`: one attempt → one decision, recorded in the transaction that changes the session
- `reviews`: a person approves or rejects one exact action
- `stores/`: sessions, the event log, the audit chain and reviews, in memory or in SQLite
- `audit/`: is the record intact, and do its verdicts follow from it?
- `incidents/`: the same rules over the event log, after the fact
- `backtest/`: what would these rules have done to recorded traffic?
- `proposals/`: which rules does clean traffic suggest?
- `integrations/`: the guard in coding agents, agent frameworks and MCP
- `commands/`: `bylaw guard …`
- `model`, `policies`: the nouns that all of them share, and rule files as policies
"""
