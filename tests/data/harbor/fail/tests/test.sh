#!/bin/bash
# The answer is in the workdir, and is judged by what only the tests know.
if [ "$(cat answer.txt)" = "$(cat "${0%/*}/expected.txt")" ]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
