"""Reports and explorers over what tuning recorded."""
