"""An example of what can be plugged into AutoTurbo: ``docs/extending.md`` goes through it."""
