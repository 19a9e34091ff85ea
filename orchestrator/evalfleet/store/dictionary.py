"""The zstd dictionary of attempt records: what nearly every record repeats. PURE.

It is part of the stored format: records compressed with it can only be read with these exact bytes, so a change
is a new dictionary with a new codec number, never an edit. Zstd finds matches nearer to the end cheaper, so the
most frequent forms stand last.
"""

from __future__ import annotations

DICTIONARY_1 = "\n".join(
    (
        '["context.injected","["compaction",["error","["unrecognised","["skill.loaded",',
        '["input.requested","approve",[["allow","Allow"],["deny","Deny"]]',
        '["thinking","The user is asking for I need to Let me think about this step by step.',
        '["operation.started","toolu_01","call_","bash",[{"command":"ls -la","path":"src/main.py","query":"',
        '"subagent",null,null],["operation.finished","toolu_01","failed",["Error: ","rejected","pending",',
        '["operation.started","call_1","search",[{"query":"","limit":10}],"tool",null,null]',
        '["operation.finished","call_1","completed",[{"results":[{"title":"","url":"https://","text":"',
        "Sure! Here is the I'm sorry, but I can't The answer is The final answer is: Thank you. ```python\ndef ",
        '["partial","["unavailable","not exposed","not reported","final events only","the protocol does not',
        "coverage:actions=partial (coverage:usage=unavailable (coverage:messages=unavailable (",
        '"gate":true,"points":1.0,"optional":false,"threshold":0.5,"minimum":,"maximum":',
        '"message_includes","called_tool","not_called_tool","tool_order","max_tool_calls","no_failed_actions",',
        '"output_matches","command_succeeded","succeeded","judge","equals","matches","pattern","similarity",',
        '{"matcher":"equals","expected":"","ignore_case":false,"times":null,"input":null,"status":null}',
        '"evals/main.eval.py:12","mismatched","unavailable","errored","failed","waiting","truncated","completed",',
        '[0,0,0,"What is the ","completed",2,[],[120,12,0,0,0,1,0.0001,0],0,1760000000.000000,0.000100,null]',
        '[[[[0,0,0,"question","completed",2,[],null,0,17',
        '[0,"check","t",{"matcher":"includes","text":"","ignore_case":false},0,["matched",null,[""],[""],null,[]],'
        'null,null,[],"evals/',
        '.eval.py:10",null,true]],[],{}],[["message","user",""],["message","assistant",""]]]',
    )
).encode()
