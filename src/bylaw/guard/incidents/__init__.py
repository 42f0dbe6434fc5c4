"""incidents: the guard's rules over its event log, after the fact.

1. `event_rows`: one row of the log → when it happened, and the attempt or event in it
2. `unrecorded`: which rules look at values that rows leave out
3. `fold`: the rules over the rows of one session, in order → findings
4. `sessions`: rows in the order of arrival, late and repeated → the findings of one ordered fold; caches session states
5. `incidents`: findings → incidents and alerts, and the changes that people make to incidents
6. `correlator`: the log in batches, each processed exactly once
7. `notifications`: the outbox, reminders of reviews, and delivery; `channels`: who is reached how, by `webhook` (signed
   JSON), `chat` (Slack) and `mail`, with the words of `wording`
8. `follow`: all of it continuously, or once over the whole log (`replay`)
"""
