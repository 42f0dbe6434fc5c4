"""What there is to see in a trace: a fold that puts events together as people read them. Nothing is judged here."""
