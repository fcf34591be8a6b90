"""What a run hands out: races where measurements vary, and schedules that pass the checks."""
