"""propose: which rules does clean traffic suggest?

1. `facts`: what all calls of a tool had in common, gathered in one pass and in bounded memory
2. `paths`: arguments by path, and what results say plainly
3. `orders`, `limits`: facts → candidates
4. `job`: candidates put before the guard on the same traffic, ranked, and dropped where they do not hold

No candidate is trusted by how it was mined: the engine judges all of the traffic under it.
"""

from __future__ import annotations
