"""What is decided: pure functions and state machines. No IO, no clock, no client."""
