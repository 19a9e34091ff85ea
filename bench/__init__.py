"""What the harness costs, measured beside its peers: `python -m bench --help`."""
