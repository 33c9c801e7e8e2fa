"""Whether records compute what they should: checks of results, legal inputs, winners."""
