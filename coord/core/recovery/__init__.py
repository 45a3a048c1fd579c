"""What stops together after a failure, and what goes on."""
