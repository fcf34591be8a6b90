"""Where the time of a schedule goes: intervals, attribution, and shares by limit."""
