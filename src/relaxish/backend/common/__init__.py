"""What all backends share."""
