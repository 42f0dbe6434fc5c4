"""incidents: the guard's rules over its event log, after the fact.

1. `event_rows`: one row of the log → when it happened, and the attempt or event in it; rules that look at values which
   rows leave out
2. `fold`: the rules over the rows of one session, in order → findings
3. `sessions`: rows in the order of arrival, late and repeated → the findings of one ordered fold; caches states;
   rules that count over many sessions
4. `incidents`: findings → incidents and alerts, and the changes that people make to incidents
5. `notifications`: the outbox, reminders of reviews, and delivery; `channels`: who is reached how, and e-mail;
   `webhook`: signed JSON, and text for a chat room
6. `follow`: all of it in batches of the log, each processed exactly once: continuously, or once over the whole log
   (`replay`)
"""
