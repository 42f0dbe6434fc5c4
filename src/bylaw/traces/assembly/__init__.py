"""From what records say to events: sessions told apart, turns numbered, calls joined to their responses."""
