"""Many attempts: who may run what, when a case is settled, and who is told."""
