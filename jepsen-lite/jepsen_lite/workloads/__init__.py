"""What a cluster under test is asked to do, how that is recorded, and what is judged afterwards."""
