"""From what records say to events: tell sessions apart, number turns, and join calls to their responses and results."""
