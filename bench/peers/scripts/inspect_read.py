"""inspect_read.py WHAT FOLDER: read the one log in FOLDER. WHAT: header, full."""

import sys
import time

from inspect_ai.log import list_eval_logs, read_eval_log

what, folder = sys.argv[1], sys.argv[2]
began = time.process_time()
(path,) = list_eval_logs(folder)
log = read_eval_log(path, header_only=what == "header")
rows = log.results.total_samples if what == "header" else len(log.samples)
sys.stdout.write(f'{{"cpu": {time.process_time() - began}, "rows": {rows}}}\n')
