"""Questions about blocks and schedules that rules, postprocs and mutators ask."""
