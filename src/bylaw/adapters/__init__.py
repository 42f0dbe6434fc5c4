"""The outside world: trace formats read and written, and whatever else a job is handed through a port."""
