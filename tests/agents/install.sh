#!/bin/sh
# Install the coding agents that the tests run, each into a folder of its own below $1, in the versions of adapters/.
set -eu
install() {
    [ -e "$1/node_modules/.bin/$2" ] && "$1/node_modules/.bin/$2" --version | grep -qF "$4" && return
    npm install --no-audit --no-fund --prefix "$1" "$3@$4"
}
version() { sed -n 's/^    version="\(.*\)",$/\1/p' "adapters/evalfleet_adapters/cli/$1.py"; }

install "$1/codex" codex @openai/codex "$(version codex)"
install "$1/claude-code" claude @anthropic-ai/claude-code "$(version claude_code)"
install "$1/opencode" opencode opencode-ai "$(version opencode)"
install_acp() {
    [ -e "$1/node_modules/.bin/$2" ] || npm install --no-audit --no-fund --prefix "$1" "$3"
}
install_acp "$1/codex-acp" codex-acp @zed-industries/codex-acp@0.16.0
# npm may be set up to run no script of a package; these link the programs
node "$1/claude-code/node_modules/@anthropic-ai/claude-code/install.cjs"
(cd "$1/opencode/node_modules/opencode-ai" && node postinstall.mjs)
