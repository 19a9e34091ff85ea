#!/bin/bash
echo "the tests broke before they decided" >&2
exit 1
