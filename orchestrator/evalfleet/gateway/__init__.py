"""What a closed sandbox can reach of us: one listener an attempt, inside its network, behind a token of its own."""
