"""audit: is the record as it was written, and do its verdicts follow from it?

1. `policies`: the rules that were given, by the hash that rows name them by
2. `rows`: a row → the attempt or event that it tells of
3. `sessions`: sessions as they are made again, bounded in memory; `book`: the reviews that people answered
4. `following`: rules that look at what is not written down, which no replay can follow
5. `recompute`: row after row through the same guard, and what it says compared with what is written
6. `verify`: the chain and the verdicts together
"""

from __future__ import annotations
