#!/bin/bash
# For each step: its own tests say what is expected.
if [ "$(cat lines.txt)" = "$(cat "${0%/*}/expected.txt")" ]; then
  echo '{"reward": 1.0, "lines": 1}' > /logs/verifier/reward.json
else
  echo '{"reward": 0.0, "lines": 0}' > /logs/verifier/reward.json
fi
