"""inspect: a trace as people read it, two traces side by side, and traces in other formats. Nothing is judged here."""
