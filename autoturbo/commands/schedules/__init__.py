"""Commands about a model and its schedules."""
