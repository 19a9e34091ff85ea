"""A program that is used as `codex exec` is, and understands the probes of the adapter suite."""

from __future__ import annotations

import json
import sys
import time
import uuid
from pathlib import Path
from typing import Any

if sys.argv[1:] == ["--version"]:
    sys.stdout.write("codex-cli 0.171.0\n")
    sys.exit()


def tell(**document: Any) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def run(name: str, number: int) -> None:
    status, code = {"ok": ("completed", 0), "fail": ("failed", 1), "reject": ("declined", None)}[name]
    item = {"id": f"item_{number}", "type": "command_execution", "command": name, "aggregated_output": name}
    tell(type="item.started", item={**item, "aggregated_output": "", "exit_code": None, "status": "in_progress"})
    tell(type="item.completed", item={**item, "exit_code": code, "status": status})


resumed = sys.argv[sys.argv.index("resume") + 1] if "resume" in sys.argv else None
thread = resumed or uuid.uuid4().hex
heard = Path(f"thread-{thread}")
text = sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
said: list[str] = [*(json.loads(heard.read_text()) if heard.exists() else []), text]
heard.write_text(json.dumps(said))
tell(type="thread.started", thread_id=thread)
tell(type="turn.started")
if text == "forever":
    time.sleep(3600)
if text == "break":
    sys.stderr.write("broken on order\n")
    sys.exit(3)
for number, name in enumerate(text.split()[1:] if text.startswith("use ") else []):
    run(name, number)
reply = " ".join(said) if text == "recall" else text
tell(type="item.completed", item={"id": "item_9", "type": "agent_message", "text": reply})
tell(type="turn.completed", usage={"input_tokens": len(said), "cached_input_tokens": 0, "output_tokens": len(said)})
